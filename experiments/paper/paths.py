"""The illustration: do the weights of a network under SGD look like an OU process?

A 784-128-10 network learns Fashion-MNIST and the path of some of its weights is kept. Their
increments are tested against a normal distribution, and an OU process is fitted to each path with
the sums of `taciturn.core.ou`, the estimator that the server uses.

A test for a pull to a mean may miss it where the pull is slow. So paths of true OU processes go
through the same tests. There are two such controls: one with the medians of what was fitted for all
paths, and one in which every path has the fit of one weight.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

from experiments.common.experiment import Setting
from experiments.common.results_file import describe
from taciturn.core import ou
from taciturn.report.table import Table
from taciturn.report.versions import versions
from taciturn.sim.local import make_step
from taciturn.sim.model import flat_model
from taciturn.tasks import load
from taciturn.tasks.task import with_test

SETTINGS = {
    "epochs": Setting(5, '"We train the model for 5 epochs"'),
    "batch": Setting(100, '"with the batch size set to 100"'),
    "lr": Setting(
        0.03,
        'Open: "SGD with a constant learning rate". Its test accuracy is in the table of what was '
        "measured.",
    ),
    "chosen": Setting(250, 'Open: "individual weights randomly selected from each layer".'),
    "drawn": Setting(4, "Open: paths that are drawn, of each array."),
    "seeds": Setting(5, "Open: the paper shows one run."),
}
NAME = "paths"  # of its file
# The keys of the controls' figures, and what they are.
CONTROLS = {"control": "control of the medians", "own_control": "control of every weight's fit"}
# The keys of what is measured, in words, and how it is written.
MEASURED = {
    "accuracy": ("test accuracy, %", ".2f"),
    "steps": ("steps", ".0f"),
    "moved": ("weights that moved", ".0f"),
    "increments_normal_share": ("increments pass for normal, % of weights", ".1f"),
    "increments_of_ten_steps_normal_share": ("increments of ten steps do, %", ".1f"),
    "increments_kurtosis_median": ("excess kurtosis of increments, median", ".3f"),
    "increments_kolmogorov_smirnov": ("Kolmogorov–Smirnov distance to a normal", ".4f"),
    "reverting_share": ("fitted rate is positive, %", ".1f"),
    "unit_root_rejected_share": ("pull to a mean is significant, %", ".1f"),
    "unit_root_rejected_in_last_epoch_share": ("the same in the last epoch, %", ".1f"),
    "rate_median": ("fitted rate per step, median", ".6f"),
    "half_life_median_steps": ("half-life in steps, median", ".0f"),
    "mean_median_distance": ("distance of the fitted mean from the start, median", ".4f"),
    "volatility_median": ("volatility per √step, median", ".6f"),
    "net_over_total_movement_median": ("net over total movement, median", ".3f"),
}
LEVEL = 0.05  # of the tests
# Dickey and Fuller's critical value at this level, with a constant, for long paths.
_DICKEY_FULLER = -2.86


class Paths(NamedTuple):
    """Paths of weights, centred on their start.

    Attributes:
      names: the array that each weight is of, (weights,).
      paths: (steps + 1, weights).
      accuracy: of the trained network, in %.
    """

    names: np.ndarray
    paths: np.ndarray
    accuracy: float


def train(data: Path | None = None, seed: int = 0) -> Paths:
    """Trains the network and keeps the paths of randomly chosen weights of every array."""
    number = {name: setting.value for name, setting in SETTINGS.items()}
    task = load("fashion", data=data, clients=1)
    clients, test = with_test(task)
    model = flat_model(task)
    start_key, order_key = jax.random.split(jax.random.key(seed))
    start = model.init(start_key)
    names, chosen = _choose(model.unravel(start), number["chosen"], seed)
    step = make_step(task, model, optax.scale(-1.0))
    size = clients.longest // number["batch"] * number["batch"]
    order = jax.vmap(lambda key: jax.random.permutation(key, clients.longest)[:size])(
        jax.random.split(order_key, number["epochs"])
    ).reshape(-1, number["batch"])
    everyone = jnp.ones(number["batch"], bool)

    @jax.jit
    def run(start: jax.Array, clients: Any) -> Any:
        def one(weights: jax.Array, rows: jax.Array) -> Any:
            batch = clients.batch(0, rows)
            params, *_ = step(
                model.unravel(weights), optax.EmptyState(), batch, everyone, None,
                number["lr"], jnp.inf,
            )  # fmt: skip
            weights = model.ravel(params)
            return weights, weights[chosen]

        return jax.lax.scan(one, start, order)

    trained, path = run(start, clients)
    right, count = task.metrics(model.unravel(trained), test.examples)["accuracy"]
    path = np.concatenate([start[chosen][None], path]).astype(np.float64)
    return Paths(names, path - path[0], float(100 * right.sum() / count.sum()))


def _choose(params: Any, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The array of every chosen weight, and its place in the flat vector."""
    rng = np.random.default_rng(seed)
    names, places, first = [], [], 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        some = np.sort(rng.choice(leaf.size, min(count, leaf.size), replace=False))
        names += [jax.tree_util.keystr(path).lstrip(".")] * len(some)
        places += list(first + some)
        first += leaf.size
    return np.array(names), np.array(places)


def increments(paths: np.ndarray, epoch: int) -> np.ndarray:
    """Of the last epoch, where the noise is steady, of all weights that still move."""
    late = np.diff(paths[-epoch - 1 :], axis=0)
    return late[:, late.std(0) > 0]


def standardised(paths: np.ndarray) -> np.ndarray:
    """The increments of the last epoch, every weight's on a scale of its own; flat."""
    late = increments(paths, (len(paths) - 1) // SETTINGS["epochs"].value)
    return ((late - late.mean(0)) / late.std(0)).reshape(-1)


def measure(found: Paths) -> dict[str, Any]:
    """The tests and the fit, for all weights that moved."""
    steps = len(found.paths) - 1
    moved = np.ptp(found.paths, axis=0) > 0
    paths = found.paths[:, moved]
    epoch = steps // SETTINGS["epochs"].value
    late = increments(paths, epoch)
    normal = stats.jarque_bera(late, axis=0).pvalue > LEVEL
    standard = standardised(paths)
    tens = late[: epoch // 10 * 10].reshape(-1, 10, late.shape[1]).sum(1)
    process, t_values = fit(paths)
    _, late_t_values = fit(np.cumsum(np.concatenate([np.zeros_like(late[:1]), late]), axis=0))
    trends = np.abs(paths[-1]) / np.abs(np.diff(paths, axis=0)).sum(0)
    inside = _reverts(process)
    return {
        "accuracy": found.accuracy,
        "steps": steps,
        "weights": found.paths.shape[1],
        "moved": int(moved.sum()),
        "increments_normal_share": float(100 * normal.mean()),
        "increments_of_ten_steps_normal_share": float(
            100 * (stats.jarque_bera(tens, axis=0).pvalue > LEVEL).mean()
        ),
        "increments_kurtosis_median": float(np.median(stats.kurtosis(late, axis=0))),
        "increments_kolmogorov_smirnov": float(stats.kstest(standard, "norm").statistic),
        "reverting_share": float(100 * inside.mean()),
        "unit_root_rejected_share": float(100 * (t_values < _DICKEY_FULLER).mean()),
        "unit_root_rejected_in_last_epoch_share": float(
            100 * (late_t_values < _DICKEY_FULLER).mean()
        ),
        "rate_median": float(np.median(process.rate[inside])),
        "half_life_median_steps": float(np.median(np.log(2) / process.rate[inside])),
        "mean_median_distance": float(np.median(np.abs(process.mean[inside]))),
        "volatility_median": float(np.median(process.volatility[inside])),
        "net_over_total_movement_median": float(np.median(trends)),
    }


class Process(NamedTuple):
    """A fitted OU process, weight by weight."""

    a: np.ndarray  # â, the share of a deviation that is left after a step
    rate: np.ndarray  # λ = −ln â; NaN where â ≤ 0
    mean: np.ndarray  # μ, where the path drifts to, counted from its start; NaN where â = 1
    volatility: np.ndarray  # σ of the process in continuous time; NaN where â ≤ 0
    # Deviation of the residuals, √(SSR / (t − 2)). The paper divides by t − 1; two parameters are
    # fitted, so t − 2 is right.
    residual: np.ndarray


@np.errstate(divide="ignore", invalid="ignore")
def fit(paths: np.ndarray) -> tuple[Process, np.ndarray]:
    """The unbounded fit of every path of three steps or more, and Dickey and Fuller's t-value of
    its pull to a mean."""
    path = ou.init(paths[0])
    for d in np.diff(paths, axis=0):
        path = ou.step(path, d)
    taken_back = path.Q / 2 + path.x * (path.m - path.x / 2)
    pull = taken_back / path.C  # 1 − â
    a, moving = 1 - pull, np.where(pull != 0, pull, np.nan)
    rate = -np.log(np.where(a > 0, a, np.nan))
    mean = path.m + path.x / path.t / moving
    ssr = path.Q - path.x**2 / path.t - 2 * pull * taken_back + pull**2 * path.C
    residual = np.sqrt(np.maximum(ssr, 0.0) / (path.t - 2))
    # The residuals' variance is σ² (1 − e^{−2λ}) / 2λ, which is σ² where λ = 0.
    spread = np.where(pull == 0, 1.0, 2 * rate / (moving * (1 + a)))
    process = Process(a, rate, mean, residual * np.sqrt(spread), residual)
    return process, -pull * np.sqrt(path.C) / residual


def _reverts(process: Process) -> np.ndarray:
    """Which fits have a pull to a mean, as an OU process has."""
    return np.isfinite(process.rate) & (process.rate > 0)


def control(measured: Mapping[str, Any], seed: int = 0) -> Paths:
    """As many paths of a true OU process, with the medians of what was fitted."""
    rate, mean, volatility = (
        measured[name] for name in ("rate_median", "mean_median_distance", "volatility_median")
    )
    a = np.exp(-rate)
    noise = volatility * np.sqrt((1 - a * a) / (2 * rate))
    every = np.ones(measured["moved"])
    return _true_paths(a * every, mean * every, noise * every, measured["steps"], seed)


def own_control(found: Paths, seed: int = 0) -> Paths:
    """A path of a true OU process for every weight whose fit has a pull, with its own fit."""
    process, _ = fit(found.paths[:, np.ptp(found.paths, axis=0) > 0])
    a, mean, noise = (
        value[_reverts(process)] for value in (process.a, process.mean, process.residual)
    )
    return _true_paths(a, mean, noise, len(found.paths) - 1, seed)


def _true_paths(a: np.ndarray, mean: np.ndarray, noise: np.ndarray, steps: int, seed: int) -> Paths:
    """Paths of OU processes from zero on, one for each of the parameters."""
    rng = np.random.default_rng(seed)
    path = np.zeros((steps + 1, len(a)))
    for t in range(steps):
        path[t + 1] = mean + a * (path[t] - mean) + noise * rng.standard_normal(len(a))
    return Paths(np.full(len(a), "control"), path, float("nan"))


def drawn(found: Paths) -> dict[str, Any]:
    """What the figure shows: some paths, and the increments of the last epoch."""
    count, every = SETTINGS["drawn"].value, max(1, (len(found.paths) - 1) // 300)
    chosen = [
        which
        for name in dict.fromkeys(found.names)
        for own in [np.flatnonzero(found.names == name)]
        for which in own[:: max(1, len(own) // count)][:count]
    ]
    standard = standardised(found.paths)
    edges = np.linspace(-5, 5, 51)
    counts, _ = np.histogram(standard, edges, density=True)
    shares = (np.arange(200) + 0.5) / 200
    return {
        "names": [str(found.names[which]) for which in chosen],
        "steps": list(range(0, len(found.paths), every)),
        "paths": [_short(found.paths[::every, which]) for which in chosen],
        "edges": _short(edges),
        "density": _short(counts),
        "shares": _short(shares),
        "quantiles": _short(np.quantile(standard, shares)),
    }


def _short(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.5g}") for number in numbers]


def run(data: Path | None = None) -> dict[str, Any]:
    """Everything of the illustration, as its file has it."""
    began = time.perf_counter()
    described = describe(load("fashion", data=data, clients=1))
    measured = []
    for seed in range(SETTINGS["seeds"].value):
        found = train(data, seed)
        if seed == 0:
            shown = drawn(found)
        own = measure(found)
        controls = {
            "control": measure(control(own, seed)),
            "own_control": measure(own_control(found, seed)),
        }
        for true in controls.values():
            del true["accuracy"]  # nothing was learned there
        measured.append({"seed": seed, **own, **controls})
    return {
        "experiment": NAME,
        "settings": {name: setting.value for name, setting in SETTINGS.items()},
        "data": described,
        "measured": measured,
        "drawn": shown,
        "seconds": round(time.perf_counter() - began, 2),
        "versions": versions(),
    }


def table(measured: Sequence[Mapping[str, Any]]) -> Table:
    """What was measured of the weights' paths, and of the controls; means over seeds."""
    rows = []
    for key, (what, form) in MEASURED.items():
        cells = [f"{np.mean([one[key] for one in measured]):{form}}"]
        for control in CONTROLS:
            own = [one[control][key] for one in measured if key in one[control]]
            cells.append(f"{np.mean(own):{form}}" if own else "")
        rows.append((what, *cells))
    columns = ("measured", "weights", *CONTROLS.values())
    return Table(f"Weights on Fashion-MNIST, {len(measured)} seeds.", columns, rows)
