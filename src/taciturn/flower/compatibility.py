"""Inner strategies: which can be wrapped, what they need and remember, and what they log."""

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy.dp_adaptive_clipping import DifferentialPrivacyAdaptiveBase
from flwr.serverapp.strategy.dp_fixed_clipping import DifferentialPrivacyFixedClippingBase
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from taciturn.errors import InputError
from taciturn.flower.records import arrays_of, record_of

_CENTRAL_DP = (DifferentialPrivacyFixedClippingBase, DifferentialPrivacyAdaptiveBase)
# They compare replies: copies of one stand-in would win there.
COMPARING = (flower.Krum, flower.MultiKrum, flower.Bulyan, flower.FedMedian, flower.FedTrimmedAvg)
# Flower's optimisers keep the model that they were last given: it is saved already.
_THE_MODEL = "current_arrays"
# Flower's own lines.
_ROUND, _ROUNDS = "[ROUND %s/%s]", "\t├── Number of rounds: %d"
RECEIVED = "%s: Received %s results and %s failures"
_AVERAGING = (flower.FedAvg, flower.FedAdagrad, flower.FedAdam, flower.FedAvgM, flower.FedYogi)


def averages(inner: flower.Strategy) -> bool:
    """Whether a strategy begins with the weighted mean of the replies, as Flower's own do."""
    return any(type(inner).aggregate_train is one.aggregate_train for one in _AVERAGING)


@contextmanager
def aggregating(
    inner: Any, each: list[RecordDict], names: Sequence[str], noise: float
) -> Iterator[None]:
    """A block in which a strategy is handed replies that stand for others. It does not log how many
    it received, and a function of the user's for metrics sees the records in `each`, one per
    client. FedAdam's second moments then lack the share of `noise` in a squared mean: with it, all
    steps are too short for as long as they remember it."""
    function = getattr(inner, "train_metrics_aggr_fn", None)
    before = getattr(inner, "v_t", None) or {}
    if function not in (None, aggregate_metricrecords):
        inner.train_metrics_aggr_fn = lambda _, key: function(each, key)
    try:
        with _filtered(lambda record: record.msg != RECEIVED):
            yield
    finally:
        if function is not None:
            inner.train_metrics_aggr_fn = function
    if isinstance(inner, flower.FedAdam) and noise and inner.v_t:
        for name in names:
            found = inner.v_t[name]
            inner.v_t[name] = found - noise * (found - inner.beta_2 * before.get(name, 0.0))


def refuse(inner: flower.Strategy) -> None:
    """Raises for a strategy that cannot be wrapped."""
    if type(inner).__module__.startswith("flwr.server.strategy"):
        raise InputError(
            f"This {type(inner).__name__} is of Flower's older interface: "
            f"`from flwr.serverapp.strategy import {type(inner).__name__}` is the one meant."
        )
    if not isinstance(inner, flower.Strategy):
        raise InputError(f"The inner strategy must be a Flower Strategy, got {inner!r}.")
    if type(inner).start is not flower.Strategy.start:
        raise InputError(
            f"{type(inner).__name__} has a `start` of its own, which would not be called: "
            "Taciturn runs the rounds. What it does there belongs into `configure_train` or "
            "`aggregate_train`."
        )
    if isinstance(inner, flower.FedXgbBagging | flower.FedXgbCyclic):
        raise InputError(f"{type(inner).__name__} collects trees: there is no mean of them.")
    _refuse_central_privacy(inner)


def _refuse_central_privacy(strategy: Any) -> None:
    if isinstance(strategy, _CENTRAL_DP):
        raise InputError(
            f"{type(strategy).__name__} cannot be combined with Taciturn: its noise is made for "
            "the updates of all sampled clients, but who is silent, and what stands in for them, "
            "follows from norms and updates without noise, and fewer replies come than were "
            "sampled. Use privacy on the client: LocalDpMod, or fixedclipping_mod with "
            "`clipping_norm` in the train config."
        )


def refuse_wrapper() -> None:
    """Refuses a wrapper for central privacy around `Taciturn`, which only the call stack shows."""
    frame = inspect.currentframe()
    while frame is not None:
        _refuse_central_privacy(frame.f_locals.get("self"))
        frame = frame.f_back


def needs(inner: flower.Strategy) -> int:
    """How many replies a strategy needs to do its work; 1 where that is not known.

    With fewer, Bulyan skips the round, and the others let a bad reply through: MultiKrum chooses
    all where there are no more than it is to choose, and a trimmed mean of few trims nobody.
    """
    bad = getattr(inner, "num_malicious_nodes", 0)
    if isinstance(inner, flower.Bulyan):
        return 4 * bad + 3
    if isinstance(inner, flower.MultiKrum):  # Krum is one, too
        return max(2 * bad + 3, bad + inner.num_nodes_to_select if bad else 0)
    if isinstance(inner, flower.FedTrimmedAvg) and inner.beta:
        found = math.ceil(1 / inner.beta)
        return found + (int(inner.beta * found) < 1)  # the product is rounded
    return 1


def trimmed_mean(inner: flower.Strategy, replies: int) -> flower.Strategy:
    """What takes the place of a strategy with too few speakers: the mean of each weight without its
    largest and smallest values, as many as the strategy bears bad replies and at least one. The
    silent are among the `replies`."""
    # FedTrimmedAvg is told a share of bad replies, the others a number.
    bad = int(getattr(inner, "beta", 0.0) * replies) or getattr(inner, "num_malicious_nodes", 0)
    trimmed = min(max(1, bad), (replies - 1) // 2)
    beta = (trimmed + 0.25) / replies  # times `replies`, it is rounded down
    same = ("weighted_by_key", "arrayrecord_key", "train_metrics_aggr_fn")
    return flower.FedTrimmedAvg(beta=beta, **{name: getattr(inner, name) for name in same})


class InnerState:
    """What a strategy and those that it wraps remember, by path: numbers and arrays, such as
    FedAdam's m_t and v_t."""

    def __init__(self, strategy: flower.Strategy) -> None:
        self._strategy = strategy
        # A number that later differs from this one is state; the others are settings.
        self._settings = dict(_attributes(strategy))

    def save(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The values to save, by path and name, and the types of the attributes."""
        found = {path: value for path, value in _attributes(self._strategy)
                 if not (_is_number(value) and self._settings.get(path) == value)}  # fmt: skip
        values = {f"inner/{path}/{name}": item for path, value in found.items()
                  for name, item in _items(value).items()}  # fmt: skip
        return values, {path: type(value).__name__ for path, value in found.items()}

    def load(self, values: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
        """Sets the attributes to what was saved."""
        for path, kind in kinds.items():
            start = f"inner/{path}/"
            found = {name.removeprefix(start): value for name, value in values.items()
                     if name.startswith(start)}  # fmt: skip
            value: Any = found
            if kind == "list":
                value = [np.asarray(found[str(i)]) for i in range(len(found))]
            elif kind == "ArrayRecord":
                value = record_of(found)
            elif kind != "dict":
                value = np.asarray(found["0"]) if kind == "ndarray" else found["0"]
            *owners, name = path.split(".")
            setattr(reduce(getattr, owners, self._strategy), name, value)


def names_of(strategy: flower.Strategy) -> list[str]:
    """The class of a strategy, and of those that it wraps."""
    inner = [value for value in vars(strategy).values() if isinstance(value, flower.Strategy)]
    return [type(strategy).__qualname__, *(name for one in inner for name in names_of(one))]


def _attributes(strategy: flower.Strategy, start: str = "") -> Iterator[tuple[str, Any]]:
    """What can be saved of a strategy and of those that it wraps, by path."""
    for name, value in vars(strategy).items():
        if isinstance(value, flower.Strategy):
            yield from _attributes(value, f"{start}{name}.")
        elif name != _THE_MODEL and _items(value):
            yield f"{start}{name}", value


def _items(value: Any) -> dict[str, Any]:
    """The arrays and numbers of an attribute; none of others."""
    if _is_number(value) or isinstance(value, np.ndarray):
        return {"0": value}
    if isinstance(value, ArrayRecord):
        return dict(arrays_of(value))
    items = dict(enumerate(value)) if isinstance(value, list) else value
    known = isinstance(items, dict) and all(isinstance(x, np.ndarray) for x in items.values())
    return {str(name): item for name, item in items.items()} if known else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def counting_on(done: int, total: int) -> AbstractContextManager[None]:
    """A block in which Flower's rounds are counted over all starts."""

    def change(record: logging.LogRecord) -> bool:
        if record.msg == _ROUND and isinstance(record.args, tuple):
            record.args = (int(f"{record.args[0]}") + done, total)
        elif record.msg == _ROUNDS:
            record.args = (total,)
        return True

    return _filtered(change)


@contextmanager
def _filtered(keep: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    logger = logging.getLogger("flwr")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
