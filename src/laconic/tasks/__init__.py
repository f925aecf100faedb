"""Tasks: data split over clients, models, losses and metrics."""

from __future__ import annotations

from collections.abc import Callable

from laconic.errors import UnknownName
from laconic.tasks.synthetic import synthetic, synthetic_niid
from laconic.tasks.task import Clients, Generated, Stored, Task, classification

TASKS: dict[str, Callable[[], Task]] = {
    "synthetic": synthetic,
    "synthetic-niid": synthetic_niid,
}

__all__ = ["TASKS", "Clients", "Generated", "Stored", "Task", "classification", "load"]


def load(name: str) -> Task:
    """The task of this name, with its defaults."""
    if name not in TASKS:
        raise UnknownName("task", name, TASKS)
    return TASKS[name]()
