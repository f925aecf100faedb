"""What one bad node of ten can do: attacks × strategies × policies, with and without a codec.

    python benchmarks/attacks.py [--seeds 4] [--jobs N] [--json FILE]       measures
    python benchmarks/attacks.py --table                  writes the table of docs/security.md

Ten nodes of which nine are honest: each moves half of the way to an optimum of its own, with noise,
as local SGD does. The tenth knows all: the model, what the others will say, the threshold. What
counts is the distance of the model to the honest nodes' mean optimum over the last three of 15
rounds, on average over seeds. It is compared with the same inner strategy and attacker where
everyone speaks: plain Flower without a codec, `full` with one.

Plain Flower has no silence, no probabilities and no codes: a silent node does not answer there, one
that claims to speak by chance claims as many examples more, and one whose code has a wrong length
sends the update that it is made of. Where an attack is on buffers, the model has means and
variances, which count in the distance.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import os
import platform
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # every process has a core of its own

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.task_identity import TaskIdentity
from pages import RESULTS, SECURITY, commit, put

from taciturn.core import client
from taciturn.core.codecs import to_bytes
from taciturn.core.policy import Policy
from taciturn.core.rules import ClientStats
from taciturn.federation import client as federation_client
from taciturn.federation.protocol import Report, Request
from taciturn.flower import Taciturn, compatibility, protocol, speak
from taciturn.flower.strategy import COMPARED, DEFAULT

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
FILE = RESULTS / "attacks.json"

NODES, ROUNDS, RATE, EXAMPLES = 10, 15, 0.5, 100
BAD = NODES - 1
SIZE, CHANNELS = 8000, 400  # weights: the default's 4 kB are an eighth of them; means or variances
# Along so many directions nodes differ. Were it all weights, all updates would be equally long.
DIRECTIONS = 20
SCALE = math.sqrt(DIRECTIONS / SIZE)  # of a weight at the optimum
CODEC = "peaks:6%"
BUDGET = "budget:6%"  # a budget brings its own codec
LIMITS = {"default": 1.25, "k=0": 2.0, "random": 2.0}
POLICIES = {
    "default": f"{DEFAULT} or {COMPARED}",
    "k=0": "adaptive,k=0,robust=true,at_most=10+ignore",
    "random": "random:0.5+ignore",
}
STRATEGIES: dict[str, Callable[[], Any]] = {
    "FedAvg": lambda: flower.FedAvg(fraction_evaluate=0.0),
    "FedAdam": lambda: flower.FedAdam(fraction_evaluate=0.0, eta=0.1 * SCALE, tau=1e-3 * SCALE),
    "FedMedian": lambda: flower.FedMedian(fraction_evaluate=0.0),
    "Krum": lambda: flower.Krum(fraction_evaluate=0.0, num_malicious_nodes=1),
    "MultiKrum": lambda: flower.MultiKrum(
        fraction_evaluate=0.0, num_malicious_nodes=1, num_nodes_to_select=5
    ),
    "Bulyan": lambda: flower.Bulyan(fraction_evaluate=0.0, num_malicious_nodes=1),
    "FedTrimmedAvg": lambda: flower.FedTrimmedAvg(fraction_evaluate=0.0, beta=0.2),
}


class Sight(NamedTuple):
    """What an attacker sees.

    Attributes:
      round: from 1 on.
      own: what it would say if it were honest.
      honest: what the honest nodes would say, a row each.
      threshold: what the server broadcast; 0 where there is none.
      away: a direction, the same in all rounds, of length 1.
    """

    round: int
    own: np.ndarray
    honest: np.ndarray
    threshold: float
    away: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.honest.mean(0)

    @property
    def norm(self) -> float:
        """The honest median."""
        return float(np.median(np.linalg.norm(self.honest, axis=1)))


class Claim(NamedTuple):
    """What it says.

    Attributes:
      update: None in silence.
      examples: how many.
      norm: None for that of the update.
      loss: of its training.
      probability: how likely the server's rule was to let it speak, which the server does not read.
      own: how likely a rule of its own was.
      nbytes: of its code; None for as many as the rule gives.
      cut: what it makes of its code.
      buffers: what all its means are, and all its variances; None for honest ones.
    """

    update: np.ndarray | None
    examples: float = EXAMPLES
    norm: float | None = None
    loss: float = 1.0
    probability: float = 1.0
    own: float = 1.0
    nbytes: int | None = None
    cut: Callable[[bytes], bytes] | None = None
    buffers: tuple[float, float] | None = None


def _spread(see: Sight) -> np.ndarray:
    return see.honest.std(0)


ATTACKS: dict[str, Callable[[Sight], Claim]] = {
    "none: it is honest": lambda see: Claim(see.own),
    # Those that earlier versions fell to.
    "n = 1e9, norm 1e3": lambda see: Claim(1e3 * see.away, 1e9),
    "honest n, norm 1e3": lambda see: Claim(1e3 * see.away),
    "norm 1e6 in round 1, then honest": lambda see: (
        Claim(1e6 * see.away) if see.round == 1 else Claim(see.mean)
    ),
    "norm 50 and n = 1e5 once, then silent with norm τ": lambda see: (
        Claim(50 * see.away, 1e5) if see.round == 1 else Claim(None, 1e5, see.threshold)
    ),
    "n = 1e-6, norm 1e5": lambda see: Claim(1e5 * see.away, 1e-6),
    "five times the honest norm": lambda see: Claim(5 * see.norm * see.away),
    "silent with n = 1e6": lambda see: Claim(None, 1e6, 0.0),
    # Ten and more of our own.
    "opposite": lambda see: Claim(-see.mean),
    "opposite, ten times": lambda see: Claim(-10 * see.mean),
    "half of the opposite": lambda see: Claim(-0.5 * see.mean),
    "a little is enough": lambda see: Claim(see.mean - 1.5 * _spread(see)),
    "copies one honest node": lambda see: Claim(see.honest[0]),
    "no update, largest n that counts": lambda see: Claim(np.zeros_like(see.away), 10 * EXAMPLES),
    "just above τ, away": lambda see: Claim(max(1.01 * see.threshold, 0.1) * see.away),
    "just below the limit of n, five times the opposite": lambda see: Claim(
        -5 * see.mean, 9.9 * EXAMPLES
    ),
    "silent with norm 1e17": lambda see: Claim(None, EXAMPLES, 1e17),
    "silent with norm 0": lambda see: Claim(None, EXAMPLES, 0.0),
    "silent and norm 1e3 in turn": lambda see: (
        Claim(1e3 * see.away) if see.round % 2 else Claim(None, 1e6, see.threshold)
    ),
    "reports a tenth of its norm": lambda see: Claim(1e2 * see.away, EXAMPLES, 10.0),
    "a loss that is NaN": lambda see: Claim(1e2 * see.away, EXAMPLES, None, math.nan),
    "weights that are NaN": lambda see: Claim(see.away * np.nan),
    # On probabilities, as 1/p is what an update weighs.
    "p = 1e-6, five times the opposite": lambda see: Claim(-5 * see.mean, probability=1e-6),
    "p = 1e-6 by its own rule, opposite": lambda see: Claim(-see.mean, own=1e-6),
    "p = 1e-9 by its own rule": lambda see: Claim(1e2 * see.away, own=1e-9),
    "p that is NaN": lambda see: Claim(1e2 * see.away, probability=math.nan, own=math.nan),
    "so few examples that p is smallest": lambda see: Claim(10 * see.norm * see.away, 0.03),
    "so short that p is smallest": lambda see: Claim(3e-4 * see.norm * see.away, 1e6),
    # On the lengths of codes.
    "a code of 32 bytes, four times the norm": lambda see: Claim(
        4 * see.norm * see.away, norm=see.norm, nbytes=32
    ),
    "a code of 1 bit per weight, five times the norm": lambda see: Claim(
        5 * see.norm * see.away, nbytes=SIZE // 8
    ),
    "a code as long as the model": lambda see: Claim(5 * see.norm * see.away, nbytes=4 * SIZE),
    "a code without its last byte": lambda see: Claim(see.own, cut=lambda code: code[:-1]),
    "half of a code": lambda see: Claim(see.own, cut=lambda code: code[: len(code) // 2]),
    "a code of 10 MB": lambda see: Claim(see.own, cut=lambda code: bytes(10**7)),
    "a code with its bytes turned round": lambda see: Claim(
        see.own, cut=lambda code: code[::-1]
    ),
}  # fmt: skip
ON_BUFFERS: dict[str, Callable[[Sight], Claim]] = {
    "buffers, none: it is honest": lambda see: Claim(see.own),
    "buffers of 1e17": lambda see: Claim(see.own, buffers=(1e17, 1e17)),
    "buffers of 1e30": lambda see: Claim(see.own, buffers=(1e30, 1e30)),
    "buffers that are NaN": lambda see: Claim(see.own, buffers=(math.nan, math.nan)),
    "variances of -1e6": lambda see: Claim(see.own, buffers=(SCALE, -1e6)),
    "variances of 0": lambda see: Claim(see.own, buffers=(SCALE, 0.0)),
    "means ten times as large": lambda see: Claim(see.own, buffers=(10 * SCALE, 2 * SCALE)),
    "buffers of 1e17 with n = 1e9": lambda see: Claim(see.own, 1e9, buffers=(1e17, 1e17)),
    "silent with buffers of 1e17": lambda see: Claim(None, buffers=(1e17, 1e17)),
}
ATTACKS |= ON_BUFFERS
# The rows of the table in docs/security.md: attacks of which the worst counts.
FAMILIES: dict[str, tuple[str, ...]] = {
    "is honest": ("none: it is honest", "buffers, none: it is honest"),
    "sends an update that is far too long": (
        "honest n, norm 1e3", "norm 1e6 in round 1, then honest", "five times the honest norm",
        "opposite, ten times", "silent and norm 1e3 in turn", "reports a tenth of its norm",
        "a loss that is NaN",
    ),
    "claims far too many or too few examples": (
        "n = 1e9, norm 1e3", "norm 50 and n = 1e5 once, then silent with norm τ",
        "n = 1e-6, norm 1e5", "no update, largest n that counts",
        "just below the limit of n, five times the opposite",
    ),
    "pulls elsewhere, with usual norm and examples": (
        "opposite", "half of the opposite", "a little is enough", "copies one honest node",
        "just above τ, away",
    ),
    "is silent, with a false norm or example count": (
        "silent with n = 1e6", "silent with norm 1e17", "silent with norm 0",
    ),
    "sends weights that are NaN": ("weights that are NaN",),
    "lies about its probability": (
        "p = 1e-6, five times the opposite", "p = 1e-6 by its own rule, opposite",
        "p = 1e-9 by its own rule", "p that is NaN", "so few examples that p is smallest",
        "so short that p is smallest",
    ),
    "sends a code of a false length, or a broken one": (
        "a code of 32 bytes, four times the norm",
        "a code of 1 bit per weight, five times the norm", "a code as long as the model",
        "a code without its last byte", "half of a code", "a code of 10 MB",
        "a code with its bytes turned round",
    ),
    "sends false buffers": tuple(name for name in ON_BUFFERS if "honest" not in name),
}  # fmt: skip


class Federation:
    """All nodes, as a Grid that knows their replies."""

    def __init__(
        self, attack: Callable[[Sight], Claim], has_buffers: bool, policy: Policy | None, seed: int
    ) -> None:
        self.attack, self.mod, self.quiet = attack, speak(), policy is not None
        self.everyone = policy is None or policy.rule.name == "full"  # speaks
        self.draws = np.random.default_rng(seed)
        directions = self.draws.standard_normal((SIZE, DIRECTIONS))
        directions[:, 0] = 1  # towards the optimum
        self.basis = np.linalg.qr(directions)[0].T
        self.optima = SCALE + 0.1 * self._normal(DIRECTIONS) @ self.basis
        away = self.draws.standard_normal(DIRECTIONS)
        self.away = away / np.linalg.norm(away) @ self.basis
        # Where each node has its means and variances, but for noise.
        usual = np.repeat([1.0, 2.0], CHANNELS if has_buffers else 0)
        self.buffers = SCALE * usual * (1 + 0.1 * self._normal(len(usual)))
        self.contexts = [Context(0, k, {}, RecordDict(), {}) for k in range(NODES)]

    def _normal(self, size: int) -> np.ndarray:
        return self.draws.standard_normal((NODES, size))

    def get_node_ids(self) -> list[int]:
        return list(range(NODES))

    def start(self) -> ArrayRecord:
        return _record(np.zeros(SIZE), np.repeat([0.0, SCALE], self.buffers.shape[1] // 2))

    def distance(self, arrays: ArrayRecord) -> float:
        """That of a model to what the honest nodes want on average."""
        found = np.concatenate([array.numpy() for array in arrays.values()])
        return float(np.linalg.norm(found - np.hstack([self.optima, self.buffers])[:BAD].mean(0)))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: Any = None
    ) -> list[Message]:
        """The replies of a round; nobody evaluates."""
        asked = sorted(messages, key=lambda message: message.metadata.dst_node_id)
        if not asked:
            return []
        weights = asked[0].content["arrays"]["w"].numpy().astype(float)
        updates = RATE * (self.optima - weights) + 0.1 * self._normal(DIRECTIONS) @ self.basis
        buffers = self.buffers + 0.1 * SCALE * self._normal(self.buffers.shape[1])
        replies = []
        for message in asked:
            k = message.metadata.dst_node_id
            if k != BAD:
                reply = _reply(message, Claim(updates[k]), weights, buffers[k], False)
                if self.quiet:
                    reply = self.mod(message, self.contexts[k], lambda *_, reply=reply: reply)
                replies.append(reply)
                continue
            request = message.content.get(protocol.REQUEST, {})
            config = message.content["config"]
            threshold = float(request.get("context.threshold", 0.0))
            see = Sight(config["server-round"], updates[k], updates[:BAD], threshold, self.away)
            claim = self.attack(see)
            if self.everyone:
                claim = _without_policy(claim)
            if claim.buffers is not None:
                buffers[k] = np.repeat(claim.buffers, CHANNELS)
            if claim.update is not None or self.quiet:
                replies.append(_reply(message, claim, weights, buffers[k], self.quiet))
        return replies


def _without_policy(claim: Claim) -> Claim:
    """The same where everyone speaks whole: nothing but silence may be claimed of how."""
    if claim.update is None and claim.buffers is not None:
        claim = claim._replace(update=np.zeros(SIZE))
    return claim._replace(
        examples=claim.examples / claim.own, probability=1.0, own=1.0, nbytes=None, cut=None
    )


def play(strategy: Any, name: str, seed: int) -> tuple[float, list[int]]:
    """The distance to the honest optimum over the last three rounds of an attack, and how many
    spoke in each round."""
    quiet = isinstance(strategy, Taciturn)
    policy = strategy.policy if quiet else None
    federation = Federation(ATTACKS[name], name in ON_BUFFERS, policy, seed)
    coin = np.random.default_rng((seed, 1))
    federation_client._uniform = lambda: float(coin.random())  # of the system's entropy otherwise
    distances = []

    def evaluate(round: int, arrays: ArrayRecord) -> None:
        distances.append(federation.distance(arrays))

    strategy.start(federation, federation.start(), num_rounds=ROUNDS, evaluate_fn=evaluate)
    spoke = [row["spoke"] for row in strategy.history] if quiet else [NODES] * ROUNDS
    return float(np.mean(distances[-3:])), spoke


def _record(weights: np.ndarray, buffers: np.ndarray) -> ArrayRecord:
    arrays = {"w": weights}
    if len(buffers):
        arrays["bn.running_mean"], arrays["bn.running_var"] = np.split(buffers, 2)
    return ArrayRecord({name: Array(array.astype("f4")) for name, array in arrays.items()})


def _reply(
    to: Message, claim: Claim, weights: np.ndarray, buffers: np.ndarray, quiet: bool
) -> Message:
    """The reply that says what is claimed, with a report where the server asked for one and the
    claim has what a client without the mod cannot say."""
    metrics = MetricRecord({"num-examples": claim.examples, "train_loss": claim.loss})
    content = RecordDict({"metrics": metrics})
    arrays = _record(np.zeros(0) if claim.update is None else weights + claim.update, buffers)
    code = _code(to, claim) if quiet else b""
    if code or claim.update is None:
        del arrays["w"]
    if arrays:
        content["arrays"] = arrays
    says = (claim.norm, claim.probability, claim.own) != (None, 1.0, 1.0)
    if quiet and (code or says or claim.update is None):
        norm = _norm(claim)
        protocol.write_report(content, Report(norm, norm, claim.probability, claim.own), code)
    return Message(content, reply_to=to)


def _norm(claim: Claim) -> float:
    if claim.norm is not None:
        return claim.norm
    return 0.0 if claim.update is None else float(np.linalg.norm(claim.update.astype("f4")))


def _code(to: Message, claim: Claim) -> bytes:
    """The update in the server's codec where the attack is on codes; else it is sent whole, as by a
    client without the mod."""
    request = Request.read(to.content[protocol.REQUEST])
    if not request.coded or (claim.nbytes is None and claim.cut is None):
        return b""
    stats = ClientStats(_norm(claim), examples=claim.examples)
    given = client.decide(request.rule, stats, request.context).nbytes
    update = claim.update.astype("f4")
    sent = client.encode(
        request.codec, update, request.key(f"{BAD}"), nbytes=int(claim.nbytes or given)
    )
    code = to_bytes(sent.codec, sent.code, SIZE)
    return code if claim.cut is None else claim.cut(code)


def measure(make: Callable[[], Any], name: str, seeds: int) -> tuple[float, float]:
    """The mean distance over seeds, and the share that spoke from round 3 on."""
    with np.errstate(all="ignore"):
        found = [play(make(), name, seed) for seed in range(seeds)]
    share = float(np.mean([spoke[2:] for _, spoke in found])) / NODES
    return float(np.mean([distance for distance, _ in found])), share


def text_of(policy: str, inner: str, codec: str) -> str | None:
    """A policy around a strategy, with a codec or none; None where it has one of its own."""
    if policy == "default" and isinstance(STRATEGIES[inner](), compatibility.COMPARING):
        return None if codec else COMPARED
    if policy == "default":
        return BUDGET if codec else DEFAULT
    return f"{POLICIES[policy]}+{codec}" if codec else POLICIES[policy]


def cases(seeds: int, case: tuple[str, str, str]) -> list[dict[str, Any]]:
    """An attack, an inner strategy, and a codec or none: a row for every policy."""
    name, inner, codec = case
    make = STRATEGIES[inner]
    whole = (lambda: Taciturn(make(), f"full+{codec}", seed=0)) if codec else make
    everyone, _ = measure(whole, name, seeds)
    rows = []
    for policy in POLICIES:
        if (text := text_of(policy, inner, codec)) is None:
            continue
        ours, share = measure(lambda text=text: Taciturn(make(), text, seed=0), name, seeds)
        rows.append({"attack": name, "inner": inner, "codec": codec, "policy": policy,
                     "everyone": _rounded(everyone), "ours": _rounded(ours),
                     "spoke": round(share, 3), "holds": holds(policy, ours, everyone)})  # fmt: skip
    return rows


def _rounded(x: float) -> float | None:
    return float(f"{x:.4g}") if math.isfinite(x) else None


def holds(policy: str, ours: float, everyone: float) -> bool:
    """Whether the distance is within the limit; anything finite is, where everyone's is not."""
    return math.isfinite(ours) and (
        not math.isfinite(everyone) or ours <= LIMITS[policy] * everyone
    )


def table(found: dict[str, Any]) -> str:
    """The largest distances and ratios of each family of attacks."""
    kinds = {"FedAvg": ["FedAvg"], "FedAdam": ["FedAdam"]}
    kinds["the other five"] = [name for name in STRATEGIES if name not in kinds]
    policies = list(POLICIES)
    ratios = " | ".join(f"worst ratio, {name}" for name in policies)
    lines = [f"| the tenth node | {' | '.join(kinds)} | {ratios} |",
             "|---|" + "---|" * (len(kinds) + len(policies))]  # fmt: skip
    for family, attacks in FAMILIES.items():
        rows = [row for row in found["rows"] if row["attack"] in attacks]
        usual = [row for row in rows if row["policy"] == "default" and not row["codec"]]
        cells = [_arrow([row for row in usual if row["inner"] in names])
                 for names in kinds.values()]  # fmt: skip
        cells += [_ratio([row for row in rows if row["policy"] == name]) for name in policies]
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _summary(found)])


def _arrow(rows: list[dict[str, Any]]) -> str:
    """The largest distance in plain Flower → here."""
    return " → ".join(_number(_largest(rows, side)) for side in ("everyone", "ours"))


def _largest(rows: list[dict[str, Any]], side: str) -> float:
    return max(math.inf if row[side] is None else row[side] for row in rows)


def _number(x: float) -> str:
    if not math.isfinite(x):
        return "NaN"
    return f"{x:.2f}" if x < 100 else f"{x:,.0f}" if x < 1e6 else f"{x:.0e}".replace("e+", "e")


def _ratio(rows: list[dict[str, Any]]) -> str:
    """The largest of the same attack here and in plain Flower, where that ends with numbers."""
    known = [row["ours"] / row["everyone"] for row in rows if row["everyone"] is not None]
    return f"{max(known):.2f} ×" if known else "–"


def _summary(found: dict[str, Any]) -> str:
    """What the policies are, and how many of their cases are beyond their limit."""
    texts = []
    for name, policy in found["policies"].items():
        own = [row["holds"] for row in found["rows"] if row["policy"] == name]
        text = policy.replace(" or ", "` or, where replies are compared, `")
        texts.append(f"- `{name}` is `{text}`: beyond {LIMITS[name]:g} × in {own.count(False)} of "
                     f"{len(own)} cases.")  # fmt: skip
    return "\n".join(texts)


def _quiet() -> None:
    """For a process that plays."""
    FLOWER_LOGGER.setLevel("CRITICAL")
    gc.freeze()  # Bulyan collects garbage for every reply: what is imported need not be looked at


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--attacks", nargs="*", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--strategies", nargs="*", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument(
        "--table", action="store_true", help="writes docs/security.md from the JSON"
    )
    options = parser.parse_args()
    if options.table:
        put(SECURITY, "attacks", table(json.loads(options.json.read_text())))
        return
    everything = list(itertools.product(options.attacks, options.strategies, ("", CODEC)))
    with ProcessPoolExecutor(options.jobs, initializer=_quiet) as pool:
        rows = [*itertools.chain(*pool.map(partial(cases, options.seeds), everything))]
    broken = [row for row in rows if not row["holds"]]
    found = {"seeds": options.seeds, "nodes": NODES, "rounds": ROUNDS, "weights": SIZE,
             "policies": POLICIES, "codec": CODEC, "limits": LIMITS, "cases": len(rows),
             "beyond": len(broken), "commit": commit(),
             "versions": {name: version(name) for name in ("flwr", "numpy")},
             "machine": platform.machine(), "rows": rows}  # fmt: skip
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(rows)} cases, {len(broken)} beyond their limit")
    for row in broken:
        print(f"{row['attack']}; {row['inner']}, {row['policy']}, {row['codec'] or 'no codec'}: "
              f"{row['everyone']} -> {row['ours']}")  # fmt: skip


if __name__ == "__main__":
    main()
