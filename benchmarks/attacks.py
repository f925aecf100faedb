"""What one bad node of ten can do: attacks × strategies × policies, with and without a codec.

    python benchmarks/attacks.py [--seeds 4] [--processes 2] [--json FILE]     measures
    python benchmarks/attacks.py --table                       writes the table of docs/security.md

Ten nodes of which nine are honest: each moves half of the way to an optimum of its own, with noise,
as local SGD does. The tenth knows all: the model, what the others will say, the threshold. What
counts is the distance of the model to the honest nodes' mean optimum over the last three of 15
rounds, on average over seeds. It is compared with the same inner strategy and attacker where
everyone speaks: plain Flower without a codec, `full` with one. A silent node is one that does not
answer there.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.task_identity import TaskIdentity
from pages import RESULTS, SECURITY, put

from taciturn.flower import Taciturn, compatibility, protocol, speak
from taciturn.flower import mod as client_mod
from taciturn.flower.strategy import DEFAULT, ROBUST

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
FILE = RESULTS / "attacks.json"

NODES, SIZE, ROUNDS, RATE, EXAMPLES = 10, 20, 15, 0.5, 100
BAD = NODES - 1
CODEC = "quantize:4"
BUDGET = "budget:60%"  # four bits for each weight, as in `CODEC`: a budget brings its own codec
LIMITS = {"default": 1.25, "k=0": 2.0, "random": 2.0}
POLICIES = {
    "default": f"{DEFAULT} or {ROBUST}",
    "k=0": "adaptive,k=0,robust=true,at_most=10+ignore",
    "random": "random:0.5+ignore",
}
STRATEGIES: dict[str, Callable[[], Any]] = {
    "FedAvg": lambda: flower.FedAvg(fraction_evaluate=0.0),
    "FedAdam": lambda: flower.FedAdam(fraction_evaluate=0.0),
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
      honest: what the honest nodes would say, a row each.
      threshold: what the server broadcast; 0 where there is none.
      away: a direction, the same in all rounds, of length 1.
    """

    round: int
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
    """What it says: an update, or None in silence; how many examples; which norm; which loss."""

    update: np.ndarray | None
    examples: float = EXAMPLES
    norm: float | None = None
    loss: float = 1.0


def _once(first: Claim, then: Callable[[Sight], Claim]) -> Callable[[Sight], Claim]:
    return lambda see: first if see.round == 1 else then(see)


def _spread(see: Sight) -> np.ndarray:
    return see.honest.std(0)


ATTACKS: dict[str, Callable[[Sight], Claim]] = {
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
}


class Nodes:
    """The part of a Grid that a strategy needs to sample."""

    def get_node_ids(self) -> list[int]:
        return list(range(NODES))


def play(
    strategy: Any, attack: Callable[[Sight], Claim] | None, seed: int
) -> tuple[float, list[int]]:
    """The distance to the honest optimum over the last three rounds, and how many spoke in each.

    Without an attack, the tenth node is not there.
    """
    draws = np.random.default_rng(seed)
    optima = 1 + 0.1 * draws.standard_normal((NODES, SIZE))
    away = draws.standard_normal(SIZE)
    away /= np.linalg.norm(away)
    mod = speak()
    coin = np.random.default_rng((seed, 1))
    client_mod._uniform = lambda: float(coin.random())  # of the system's entropy otherwise
    contexts = [Context(0, k, {}, RecordDict(), {}) for k in range(NODES)]
    quiet, arrays, distances, spoke = (
        isinstance(strategy, Taciturn),
        _record(np.zeros(SIZE)),
        [],
        [],
    )
    for t in range(1, ROUNDS + 1):
        weights = arrays["w"].numpy().astype(float)
        updates = RATE * (optima - weights) + 0.1 * draws.standard_normal((NODES, SIZE))
        replies = []
        asked = strategy.configure_train(t, arrays, ConfigRecord(), Nodes())
        for message in sorted(asked, key=lambda message: message.metadata.dst_node_id):
            k = message.metadata.dst_node_id
            if k != BAD:
                reply = _reply(message, weights + updates[k], EXAMPLES, None, 1.0)
                if quiet:
                    reply = mod(message, contexts[k], lambda *_, reply=reply: reply)
                replies.append(reply)
            elif attack is not None:
                request = message.content.get(protocol.REQUEST, {})
                threshold = request.get("context.threshold", 0.0)
                claim = attack(Sight(t, updates[:BAD], float(threshold), away))
                trained = None if claim.update is None else weights + claim.update
                if trained is not None or quiet:
                    norm = claim.norm if quiet else None
                    replies.append(_reply(message, trained, claim.examples, norm, claim.loss))
        arrays = strategy.aggregate_train(t, replies)[0] or arrays
        distances.append(np.linalg.norm(arrays["w"].numpy() - optima[:BAD].mean(0)))
        spoke.append(strategy.history[-1]["spoke"] if quiet else len(replies))
    return float(np.mean(distances[-3:])), spoke


def _record(weights: np.ndarray) -> ArrayRecord:
    return ArrayRecord({"w": Array(weights.astype(np.float32))})


def _reply(
    to: Message, weights: np.ndarray | None, examples: float, norm: float | None, loss: float
) -> Message:
    metrics = MetricRecord({"num-examples": examples, "train_loss": loss})
    content = RecordDict({"metrics": metrics})
    if norm is not None:
        protocol.write_report(content, protocol.Report(norm, norm))
    if weights is not None:
        content["arrays"] = _record(weights)
    return Message(content, reply_to=to)


def measure(make: Callable[[], Any], attack: Any, seeds: int) -> tuple[float, float]:
    """The mean distance over seeds, and the share that spoke from round 3 on."""
    with np.errstate(all="ignore"):
        found = [play(make(), attack, seed) for seed in range(seeds)]
    share = float(np.mean([spoke[2:] for _, spoke in found])) / NODES
    return float(np.mean([distance for distance, _ in found])), share


def text_of(policy: str, inner: str, codec: str) -> str:
    """A policy around a strategy, with a codec or none."""
    text = POLICIES[policy]
    if policy == "default":
        if not isinstance(STRATEGIES[inner](), compatibility.COMPARING):
            return BUDGET if codec else DEFAULT
        text = ROBUST
    return f"{text}+{codec}" if codec else text


def cases(seeds: int, case: tuple[str, str, str]) -> list[dict[str, Any]]:
    """An attack, an inner strategy, and a codec or none: a row for every policy."""
    name, inner, codec = case
    attack, make = ATTACKS[name], STRATEGIES[inner]
    whole = (lambda: Taciturn(make(), f"full+{codec}", seed=0)) if codec else make
    everyone, _ = measure(whole, attack, seeds)
    rows = []
    for policy in POLICIES:
        text = text_of(policy, inner, codec)
        ours, share = measure(lambda text=text: Taciturn(make(), text, seed=0), attack, seeds)
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
    """The default policy without a codec in full; of the others, the largest ratio."""
    rows, names = found["rows"], list(STRATEGIES)
    cell = {(r["attack"], r["inner"], r["policy"], r["codec"]): r for r in rows}
    lines = [f"| the tenth node | {' | '.join(names)} | most, `k=0` | most, `random:0.5` |",
             "|---|" + "---|" * (len(names) + 2)]  # fmt: skip
    for attack in dict.fromkeys(r["attack"] for r in rows):
        own = [cell[attack, inner, "default", ""] for inner in names]
        texts = [f"{_number(r['everyone'])} → {_number(r['ours'])}" for r in own]
        texts += [_ratio([r for r in rows if r["attack"] == attack and r["policy"] == policy])
                  for policy in ("k=0", "random")]  # fmt: skip
        lines.append(f"| {attack} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _number(x: float | None) -> str:
    if x is None or not math.isfinite(x):
        return "NaN"
    return f"{x:.2f}" if x < 100 else f"{x:.0f}"


def _ratio(rows: list[dict[str, Any]]) -> str:
    known = [r["ours"] / r["everyone"] for r in rows if r["everyone"] is not None]
    return f"{max(known):.2f} ×" if known else "–"


def _quiet() -> None:
    """For a process that plays."""
    FLOWER_LOGGER.setLevel("CRITICAL")
    gc.freeze()  # Bulyan collects garbage for every reply: what is imported need not be looked at


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument(
        "--table", action="store_true", help="writes docs/security.md from the JSON"
    )
    options = parser.parse_args()
    if options.table:
        put(SECURITY, "attacks", table(json.loads(options.json.read_text())))
        return
    everything = list(itertools.product(ATTACKS, STRATEGIES, ("", CODEC)))
    with ProcessPoolExecutor(options.processes, initializer=_quiet) as pool:
        rows = [*itertools.chain(*pool.map(partial(cases, options.seeds), everything))]
    broken = [row for row in rows if not row["holds"]]
    found = {"seeds": options.seeds, "nodes": NODES, "rounds": ROUNDS, "policies": POLICIES,
             "codec": CODEC, "limits": LIMITS, "cases": len(rows), "beyond": len(broken),
             "versions": {name: version(name) for name in ("flwr", "numpy")},
             "machine": platform.machine(), "rows": rows}  # fmt: skip
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(rows)} cases, {len(broken)} beyond their limit")
    for row in broken:
        print(f"{row['attack']}; {row['inner']}, {row['policy']}, {row['codec'] or 'no codec'}: "
              f"{row['everyone']} -> {row['ours']}")  # fmt: skip


if __name__ == "__main__":
    main()
