"""A task, checked once before it is used: what would train to wrong numbers is one clear error."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.checks import choice, whole
from taciturn.errors import InputError, TaciturnError
from taciturn.tasks.clients import HOLD_OUT, Batch, Stored
from taciturn.tasks.task import Task

_EXAMPLES = 3  # in the batch that functions are tried with
_LOOKED_AT = 1 << 24  # numbers of an array; of a larger one, evenly spaced rows

_checked: weakref.WeakKeyDictionary[Task, tuple[str, ...]] = weakref.WeakKeyDictionary()


def check(task: Task) -> None:
    """Raises unless a task's data are in range and its functions return what they should.

    Functions are only traced, so that nothing is computed or compiled.
    """
    if not all(hasattr(task, name) for name in ("name", "clients", "init", "loss", "metrics")):
        raise InputError(f"A task is a `taciturn.Task` or the name of one, got {task!r:.60}.")
    if task in _checked:
        return
    for name in ("population", "longest"):
        whole(f"clients.{name}", getattr(task.clients, name, None))
    choice("hold_out", task.hold_out, HOLD_OUT)
    stored = task.clients.arrays if isinstance(task.clients, Stored) else None
    data = [(f"Task `{task.name}`, {which} data", arrays)
            for which, arrays in (("training", stored), ("test", task.test))
            if arrays is not None]  # fmt: skip
    for where, arrays in data:
        _check_arrays(where, arrays)
    _check_owners(task)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = _traced(task, "init", task.init, key)
    rows = jnp.zeros(_EXAMPLES, int)
    batch = _traced(
        task, "clients", lambda clients: clients.batch(jnp.int32(0), rows), task.clients
    )
    losses = _traced(task, "loss", task.loss, params, batch, key)
    what = f"The loss of task `{task.name}` must be one number per example, not their mean"
    _check_length(what, losses, _EXAMPLES)
    tested = batch
    if task.test is not None:
        tested = jax.eval_shape(lambda test: jax.tree.map(lambda a: a[rows], test), task.test)
    metrics = _traced(task, "metrics", task.metrics, params, tested)
    _check_metrics(task, metrics)
    if logits := getattr(task.loss, "logits", None):  # of a model made for `classification`
        classes = jax.eval_shape(logits, params, batch["x"], key).shape[-1]
        for where, arrays in data:
            _check_labels(where, np.asarray(arrays["y"]), classes)
    if draw := task.cohort:
        size, number = min(_EXAMPLES, task.clients.population), jax.ShapeDtypeStruct((), jnp.int32)
        drawn = _traced(task, "cohort", lambda key, t: draw(key, t, size), key, number)
        what = f"`cohort` of task `{task.name}` must draw as many clients as it is asked for"
        _check_length(what, drawn, size)
    _checked[task] = tuple(metrics)


def metric_names(task: Task) -> tuple[str, ...]:
    """What the task's `metrics` are called."""
    check(task)
    return _checked[task]


def _traced(task: Task, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the task would return, in shapes and dtypes."""
    try:
        return jax.eval_shape(function, *arguments)
    except TaciturnError:
        raise
    except Exception as error:  # whatever somebody's own code raises
        first, *_ = str(error).strip().split("\n")
        seen = f"{type(error).__name__}: {first}"
        raise InputError(f"`{name}` of task `{task.name}` fails: {seen}") from error


def _shape(found: Any) -> Any:
    """The shape of what a function returned, or the type of what has none."""
    return getattr(found, "shape", type(found).__name__)


def _check_length(what: str, found: Any, length: int) -> None:
    if _shape(found) != (length,):
        raise InputError(f"{what}: for {length} a shape of ({length},), got {_shape(found)}.")


def _check_owners(task: Task) -> None:
    """Raises unless `test_clients`, where it is there, has a number for each test example."""
    if task.test_clients is None:
        return
    if task.test is None:
        raise InputError(f"`test_clients` of task `{task.name}` needs a `test` set beside it.")
    whose, count = np.asarray(task.test_clients), len(jax.tree.leaves(task.test)[0])
    if whose.shape != (count,) or whose.dtype.kind not in "iu":
        raise InputError(
            f"`test_clients` of task `{task.name}` must be a whole number for each of the {count} "
            f"test examples, got {whose.dtype} of shape {whose.shape}."
        )


def _check_arrays(where: str, arrays: Batch) -> None:
    """Raises unless all arrays have one length above 0, and numbers that JAX can hold."""
    lengths = {}
    for path, array in jax.tree_util.tree_leaves_with_path(arrays):
        name = f"{where}: {jax.tree_util.keystr(path) or 'the array'}"
        if not hasattr(array, "dtype") or not np.ndim(array):
            raise InputError(f"{name} must be an array, one entry per example, got {array!r:.60}.")
        lengths[jax.tree_util.keystr(path)] = len(array)
        _check_numbers(name, np.asarray(array))
    if len(set(lengths.values())) > 1:
        raise InputError(f"{where}: arrays must be of one length, got {lengths}.")
    if not any(lengths.values()):
        raise InputError(f"{where}: there are no {'examples' if lengths else 'arrays'}.")


def _check_numbers(where: str, array: np.ndarray) -> None:
    """Raises if a number is not finite, or would be cut in the dtype that JAX gives it."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{where} must be numbers, got {array.dtype}.")
    if not array.size or array.dtype.itemsize == 1:
        return
    if array.dtype.kind == "f" and not np.isfinite(array[:: -(-array.size // _LOOKED_AT)]).all():
        raise InputError(f"{where} must be finite, got NaN or infinity.")
    kept = jax.dtypes.canonicalize_dtype(array.dtype)
    if kept.itemsize < array.dtype.itemsize:
        about = jnp.finfo(kept) if kept.kind == "f" else jnp.iinfo(kept)
        for end in (array.max().item(), array.min().item()):
            if not float(about.min) <= end <= float(about.max):
                raise InputError(f"{where} must fit into {kept}, got {end}.")


def _check_metrics(task: Task, found: Any) -> None:
    if not isinstance(found, Mapping) or not found:
        seen = type(found).__name__
        raise InputError(f"The metrics of task `{task.name}` must be a dict of names, got {seen}.")
    for name, pair in found.items():
        shapes = [_shape(part) for part in (pair if isinstance(pair, tuple) else (pair,))]
        if shapes != [(_EXAMPLES,)] * 2:
            raise InputError(
                f"The metric `{name}` of task `{task.name}` must be a pair, a value and a weight "
                f"for each example: for {_EXAMPLES} examples two shapes of ({_EXAMPLES},), got "
                f"{shapes}."
            )


def _check_labels(where: str, labels: np.ndarray, classes: int) -> None:
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise InputError(
            f"{where}: labels must be in 0 to {classes - 1}, the classes of its model, "
            f"got {wrong[0]}."
        )
