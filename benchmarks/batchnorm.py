"""Networks with BatchNorm under the default policy, beside plain Flower.

    python benchmarks/batchnorm.py [--seeds 3] [--rounds 40] [--jobs N] [--json FILE]    measures
    python benchmarks/batchnorm.py --wire              a SuperLink, four SuperNodes, 20 rounds
    python benchmarks/batchnorm.py --table             writes the table of docs/production.md

Eight nodes with 320 drawn digits each (`taciturn.load("glyphs")`), every node with writers of its
own, 14 × 14 pixels; 2,000 digits of other writers are the test. A CNN of two convolutions and a
residual network of nine, each with BatchNorm behind it, named and trained as PyTorch does: momentum
0.1, unbiased variances, counters. Flower's own `Strategy.start` plays the rounds in this process;
accuracy is the mean of the last five rounds. A round is broken where any array of the model is not
finite, or a variance is below 0.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # every process has a core of its own
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.task_identity import TaskIdentity
from pages import PRODUCTION, RESULTS, ROOT, commit, put

import taciturn
from taciturn.federation import client
from taciturn.flower import Taciturn, speak

FILE, WIRE = RESULTS / "batchnorm.json", RESULTS / "batchnorm_wire.json"
NODES, EXAMPLES, TESTED, BATCH, DIGITS = 8, 320, 2_000, 20, 10
RATE = 0.05  # of the nodes' SGD
LIMIT = 0.01  # of accuracy below plain Flower's
POLICIES = {
    "plain": None,
    "budget": "budget",
    "sparse down": "budget+down=sparse_ternary:0.05",
    "dense down": "budget+down=eden:1",
}
STRATEGIES: dict[str, Callable[[], Any]] = {
    "FedAvg": lambda: flower.FedAvg(fraction_evaluate=0.0),
    "FedAdam": lambda: flower.FedAdam(fraction_evaluate=0.0, eta=0.01),
}
Weights = dict[str, Any]


class Network:
    """Layers by name; they make their weights where there are none, and collect what BatchNorm
    learns where they train."""

    def __init__(self, weights: Weights, training: bool, seed: int | None = None) -> None:
        self.weights, self.training, self.learned = weights, training, {}
        self.draws = None if seed is None else np.random.default_rng(seed)

    def conv(self, name: str, x: Any, channels: int, stride: int = 1, side: int = 3) -> Any:
        kernel = self._weight(name, (side, side, x.shape[-1], channels))
        edge, size = side // 2, x.shape[1]
        x = jnp.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        # As a matrix product: XLA's own convolutions take ten times as long on a CPU.
        near = [x[:, i : i + size : stride, j : j + size : stride]
                for i in range(side) for j in range(side)]  # fmt: skip
        x = jnp.concatenate(near, -1) @ kernel.reshape(-1, channels)
        return self._norm(name.replace("conv", "bn"), x)

    def dense(self, name: str, x: Any, outputs: int) -> Any:
        return x @ self._weight(name, (x.shape[-1], outputs)) + self._start(
            f"{name}.bias", np.zeros(outputs, "f4")
        )

    def _weight(self, name: str, shape: tuple[int, ...]) -> Any:
        """Drawn as He et al. do."""
        spread = np.sqrt(2 / np.prod(shape[:-1]))
        drawn = None if self.draws is None else self.draws.standard_normal(shape, "f4") * spread
        return self._start(f"{name}.weight", drawn)

    def _norm(self, name: str, x: Any) -> Any:
        ones = np.ones(x.shape[-1], "f4")
        weight, bias = self._start(f"{name}.weight", ones), self._start(f"{name}.bias", 0 * ones)
        mean = self._start(f"{name}.running_mean", 0 * ones)
        var = self._start(f"{name}.running_var", ones)
        count = self._start(f"{name}.num_batches_tracked", np.array(0))
        if self.training:
            old, many = (mean, var), x.size / x.shape[-1]
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            unbiased = var * many / (many - 1)
            self.learned |= {f"{name}.running_mean": 0.9 * old[0] + 0.1 * mean,
                             f"{name}.running_var": 0.9 * old[1] + 0.1 * unbiased,
                             f"{name}.num_batches_tracked": count + 1}  # fmt: skip
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * weight + bias

    def _start(self, name: str, value: Any) -> Any:
        if self.draws is not None:
            self.weights[name] = np.asarray(value, None if name.endswith("tracked") else "f4")
        return self.weights[name]


def cnn(net: Network, x: Any) -> Any:
    for i, channels in enumerate((32, 64)):
        x = jax.nn.relu(net.conv(f"conv{i}", x, channels))
        half = x.shape[1] // 2
        x = x[:, : 2 * half, : 2 * half].reshape(len(x), half, 2, half, 2, channels).max((2, 4))
    return net.dense("fc", x.reshape(len(x), -1), DIGITS)


def resnet(net: Network, x: Any) -> Any:
    x = jax.nn.relu(net.conv("conv0", x, 16))
    for i, (channels, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
        y = jax.nn.relu(net.conv(f"block{i}.conv0", x, channels, stride))
        y = net.conv(f"block{i}.conv1", y, channels)
        shortcut = x if stride == 1 else net.conv(f"block{i}.conv2", x, channels, stride, 1)
        x = jax.nn.relu(y + shortcut)
    return net.dense("fc", x.mean((1, 2)), DIGITS)


NETWORKS = {"CNN": cnn, "ResNet": resnet}


@cache
def digits(node: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """So many images and labels of a node's own writers."""
    writers, each, clients = 50, count // 5, taciturn.load("glyphs").clients
    client, index = np.divmod(np.arange(writers * each, dtype=np.int32), each)
    draw = jax.jit(jax.vmap(clients.example, (0, 0, None)))
    drawn = draw(client + node * writers, index, clients.data)
    found = np.flatnonzero(np.asarray(drawn["y"]) < DIGITS)
    found = np.random.default_rng(0).permutation(found)[:count]
    x = np.asarray(drawn["x"])[found].reshape(-1, 14, 2, 14, 2, 1).mean((2, 4))
    return (x - 0.2) / 0.35, np.asarray(drawn["y"])[found]


@partial(jax.jit, static_argnums=0)
def train(name: str, arrays: Weights, x: Any, y: Any) -> tuple[Weights, Any]:
    """The arrays after a step for each batch, and the mean loss."""

    def step(arrays: Weights, batch: tuple[Any, Any]) -> tuple[Weights, Any]:
        weights = {k: v for k, v in arrays.items() if ".running_" not in k and "tracked" not in k}

        def loss(weights: Weights) -> tuple[Any, Weights]:
            net = Network(arrays | weights, True)
            logits = jax.nn.log_softmax(NETWORKS[name](net, batch[0]))
            return -jnp.take_along_axis(logits, batch[1][:, None], 1).mean(), net.learned

        (value, learned), slope = jax.value_and_grad(loss, has_aux=True)(weights)
        moved = {key: weights[key] - RATE * slope[key] for key in weights}
        return arrays | moved | learned, value

    arrays, losses = jax.lax.scan(step, arrays, (x, y))
    return arrays, losses.mean()


@partial(jax.jit, static_argnums=0)
def accuracy(name: str, arrays: Weights, x: Any, y: Any) -> Any:
    return (NETWORKS[name](Network(arrays, False), x).argmax(1) == y).mean()


def trained(
    name: str, sent: ArrayRecord, k: int, order: np.ndarray
) -> tuple[ArrayRecord, dict[str, float]]:
    """What node k makes of a model, and its metrics."""
    x, y = (rows[order].reshape(-1, BATCH, *rows.shape[1:]) for rows in digits(k, EXAMPLES))
    arrays, loss = train(name, _numpy(sent), x, y)
    record = _record({key: np.asarray(arrays[key], sent[key].dtype) for key in sent})
    return record, {"num-examples": EXAMPLES, "train_loss": float(loss)}


def first(name: str, seed: int) -> ArrayRecord:
    """The model to begin with."""
    start = Network({}, False, seed)
    NETWORKS[name](start, digits(NODES, TESTED)[0][:1])
    return _record(start.weights)


class Tests:
    """The accuracy after each round, and the rounds in which a model is broken."""

    def __init__(self, name: str) -> None:
        self.name, self.found, self.broken = name, [], []

    def __call__(self, round: int, arrays: ArrayRecord) -> None:
        weights = _numpy(arrays)
        below = any((weights[name] < 0).any() for name in weights if "running_var" in name)
        if below or not all(np.isfinite(array).all() for array in weights.values()):
            self.broken.append(round)
        self.found.append(round_to(accuracy(self.name, weights, *digits(NODES, TESTED))))


class Federation:
    """All nodes, as a Grid that trains them."""

    def __init__(self, name: str, quiet: bool, seed: int) -> None:
        self.name, self.quiet, self.mod = name, quiet, speak()
        self.draws = np.random.default_rng((seed, 1))
        self.contexts = [Context(0, k, {}, RecordDict(), {}) for k in range(NODES)]

    def get_node_ids(self) -> list[int]:
        return list(range(NODES))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: Any = None
    ) -> list[Message]:
        """The replies of a round; nobody evaluates."""
        asked = sorted(messages, key=lambda message: message.metadata.dst_node_id)
        orders = self.draws.random((NODES, EXAMPLES)).argsort(1)
        return [self._answer(message, orders[message.metadata.dst_node_id]) for message in asked]

    def _answer(self, message: Message, order: np.ndarray) -> Message:
        k = message.metadata.dst_node_id

        def app(message: Message, _: Context) -> Message:
            arrays, metrics = trained(self.name, message.content["arrays"], k, order)
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
            return Message(content, reply_to=message)

        return (self.mod if self.quiet else lambda m, c, app: app(m, c))(
            message, self.contexts[k], app
        )


def _record(arrays: Weights) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def _numpy(record: ArrayRecord) -> Weights:
    return {name: array.numpy() for name, array in record.items()}


def play(rounds: int, case: tuple[str, str, str, int]) -> dict[str, Any]:
    """A run: accuracy after each round, broken rounds, and bytes."""
    network, inner, policy, seed = case
    FLOWER_LOGGER.setLevel("CRITICAL")
    began, text, strategy = time.perf_counter(), POLICIES[policy], STRATEGIES[inner]()
    if text is not None:
        strategy = Taciturn(strategy, text, seed=seed)
    coin = np.random.default_rng((seed, 2))
    client._uniform = lambda: float(coin.random())  # of the system's entropy otherwise
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    federation, start = Federation(network, text is not None, seed), first(network, seed)
    tests = Tests(network)
    with np.errstate(all="ignore"):
        strategy.start(federation, start, num_rounds=rounds, evaluate_fn=tests)
    row = {"network": network, "inner": inner, "policy": policy, "seed": seed,
           "weights": sum(array.numpy().size for array in start.values()),
           "accuracy": round_to(np.mean(tests.found[-5:])), "broken": tests.broken,
           "by_round": tests.found[1:],
           "seconds": round(time.perf_counter() - began, 1)}  # fmt: skip
    if text is not None:
        names = ("bytes_up", "bytes_up_full", "bytes_always", "bytes_down", "bytes_down_full",
                 "rejected")  # fmt: skip
        row |= {name: sum(int(r[name]) for r in strategy.history) for name in names}
    print(json.dumps({key: row[key] for key in row if key != "by_round"}), flush=True)
    return row


def round_to(x: Any) -> float:
    return round(float(x), 4)


def wire() -> dict[str, Any]:
    """Real federations, one after another: plain, and with a short code both ways."""
    sys.path.append(str(ROOT / "tests" / "flower"))
    import loopback

    found: dict[str, Any] = {}
    for policy in (None, POLICIES["budget"], POLICIES["sparse down"]):
        with tempfile.TemporaryDirectory() as name:
            path = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'benchmarks'}",
                    "JAX_COMPILATION_CACHE_DIR": str(Path(name, "compiled"))}  # fmt: skip
            with loopback.Federation(Path(name), environment=path) as federation:
                federation.start()
                out, app = Path(name, "found.json"), Path(__file__).parent / "batchnorm_app"
                federation.submit("bn", app, out=str(out), policy=policy or "").wait()
                if not out.exists():
                    raise SystemExit(federation.log("run-bn"))
                found[policy or "plain"] = json.loads(out.read_text()) | {
                    "up": sum(proxy.up for proxy in federation.proxies),
                    "down": sum(proxy.down for proxy in federation.proxies),
                }
                print(policy, found[policy or "plain"], flush=True)
    return found


def table(found: dict[str, Any]) -> str:
    rows = found["rows"]
    named = " | ".join(f"`{text}`" if text else "plain Flower" for text in POLICIES.values())
    lines = [f"| network | strategy | {named} | upload |", "|---|---|---|---|---|---|---|"]
    for network, inner in itertools.product(NETWORKS, STRATEGIES):
        of = {policy: [r for r in rows if (r["network"], r["inner"], r["policy"])
                       == (network, inner, policy)] for policy in POLICIES}  # fmt: skip
        shown = []
        for of_policy in of.values():
            broken = sum(len(r["broken"]) for r in of_policy)
            text = f"{np.mean([r['accuracy'] for r in of_policy]):.1%}"
            shown.append(text + (f", {broken} rounds broken" if broken else ""))
        up, full = (sum(r[name] for r in of["budget"]) for name in ("bytes_up", "bytes_up_full"))
        lines.append(f"| {network} | {inner} | {' | '.join(shown)} | {up / full:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--strategies", nargs="*", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument("--wire", action="store_true", help="a real federation, all its bytes")
    parser.add_argument(
        "--table", action="store_true", help="writes docs/production.md from the JSON"
    )
    options = parser.parse_args()
    if options.table:
        put(PRODUCTION, "batchnorm", table(json.loads(options.json.read_text())))
        return
    if options.wire:
        about = {"nodes": 4, "network": "CNN", "strategy": "FedAvg", "commit": commit()}
        WIRE.write_text(json.dumps(about | {"runs": wire()}, indent=1) + "\n")
        return
    cases = [*itertools.product(options.networks, options.strategies, POLICIES,
                                range(options.seeds))]  # fmt: skip
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        rows = [*pool.map(partial(play, options.rounds), reversed(cases))][::-1]
    plain = {(r["network"], r["inner"], r["seed"]): r["accuracy"] for r in rows
             if r["policy"] == "plain"}  # fmt: skip
    beyond = []
    for network, inner, policy in itertools.product(options.networks, options.strategies, POLICIES):
        of = [
            r for r in rows if (r["network"], r["inner"], r["policy"]) == (network, inner, policy)
        ]
        lost = np.mean([plain[network, inner, r["seed"]] - r["accuracy"] for r in of])
        print(f"{network}, {inner}, {policy}: {100 * lost:+.2f} points lost")
        if policy != "plain" and (lost > LIMIT or any(r["broken"] for r in of)):
            beyond.append(f"{network}, {inner}, {policy}")
    found = {"nodes": NODES, "examples": EXAMPLES, "rounds": options.rounds,
             "seeds": options.seeds, "policies": POLICIES, "limit": LIMIT, "beyond": beyond,
             "commit": commit(),
             "versions": {name: version(name) for name in ("flwr", "numpy", "jax")},
             "rows": rows}  # fmt: skip
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"beyond the limit: {beyond or 'none'}")


if __name__ == "__main__":
    main()
