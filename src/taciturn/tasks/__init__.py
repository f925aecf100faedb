"""Tasks: data split over clients, models, losses and metrics."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taciturn.checks import choice
from taciturn.errors import InputError, UnknownName
from taciturn.tasks.clients import HOLD_OUT, Clients, Generated, Stored
from taciturn.tasks.files import fashion, folder, idx, npz, table
from taciturn.tasks.glyphs import glyphs
from taciturn.tasks.published import emnist, shakespeare, shakespeare_leaf
from taciturn.tasks.synthetic import synthetic, synthetic_niid
from taciturn.tasks.task import Task, classification, regression

_PUBLISHED, _OWN = (emnist, shakespeare, shakespeare_leaf, fashion), (idx, npz, folder, table)
TASKS: dict[str, Callable[..., Task]] = {
    function.__name__.replace("_", "-"): function
    for function in (glyphs, *_PUBLISHED, *_OWN, synthetic, synthetic_niid)
}

__all__ = [
    "TASKS", "Clients", "Generated", "Stored", "Task", "classification", "load", "regression",
    "table",
]  # fmt: skip


def options_of(name: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of a task's function, by name."""
    if not isinstance(name, str) or name not in TASKS:
        raise UnknownName("task", name, TASKS)
    return inspect.signature(TASKS[name]).parameters


def load(name: str, *, hold_out: str | None = None, **options: Any) -> Task:
    """The task of this name.

    Args:
      name: one of `TASKS`.
      hold_out: which tenth of every client is tested on, `random` or `last`, for tasks that have no
        test set.
      **options: arguments of the task's function; what is left out or None has its default.
    """
    known = options_of(name)
    if "hold_out" in known:
        options["hold_out"], hold_out = hold_out, None
    options = {key: value for key, value in options.items() if value is not None}
    for key in options:
        if key not in known:
            there = ", ".join(known) or "none"
            raise InputError(f"The task `{name}` has no option `{key}`. It has: {there}.")
    task = TASKS[name](**options)
    if hold_out is None:
        return task
    if task.test is not None:
        raise InputError(f"`hold_out` cannot be chosen: `{name}` comes with a test set.")
    if isinstance(task.clients, Generated):
        raise InputError(f"`hold_out` cannot be chosen: the rows of `{name}` are drawn.")
    return replace(task, hold_out=choice("hold_out", hold_out, HOLD_OUT))
