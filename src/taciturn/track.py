"""Trackers: figures of every round in TensorBoard, Weights & Biases, MLflow or Trackio.

What a tracker calls a run is an arm here, its figures means over seeds. Where a tracker fails on
the way, that is said once, and training goes on without it.
"""

import contextvars
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from taciturn.errors import MissingExtra, RunError, UnknownName, install, require
from taciturn.progress import Compiling, Progress

log = logging.getLogger("taciturn")

_PROJECT = "taciturn"

Rows = Sequence[tuple[int, Mapping[str, float]]]  # rounds, counted from 1, and their figures


class Run(NamedTuple):
    """A run as a tracker has it."""

    add: Callable[[Rows], None]
    close: Callable[[], None]


def library(name: str) -> ModuleType:
    """The tracker's library, or an error that says how to install it."""
    if name not in _OPEN:
        raise UnknownName("tracker", name, _OPEN)
    found = require("tensorboard.summary" if name == "tensorboard" else name, name)
    if getattr(found, "__file__", None) is None:  # a folder that a tracker has left here
        raise MissingExtra(f"`{name}` is not installed. {install(name)}")
    return found


class Tracker:
    """Passes on what a simulation tells, or the rows of a federation.

    The name of the run folder is the group of the tracked runs. TensorBoard's and Weights & Biases'
    files lie in it; the other two write where they are set up to. `seeds` are all those of a
    simulation.
    """

    def __init__(
        self, name: str, folder: Path, settings: Mapping[str, Any], seeds: Sequence[int] = ()
    ) -> None:
        self._name, self._folder, self._seeds = name, folder, tuple(seeds)
        self._library = library(name)
        self._settings = {key: value if isinstance(value, str | int | float) else str(value)
                          for key, value in settings.items() if value is not None}  # fmt: skip
        self._runs: dict[str, Run] = {}
        self._failed = False

    def close(self) -> None:
        """Ends the runs; those that come after are new ones."""
        for run in self._runs.values():
            self._try(run.close)
        self._runs = {}

    def __call__(self, told: Progress | Compiling) -> None:
        """Takes what `taciturn.sim.compare` tells while it runs."""
        if isinstance(told, Compiling):
            return
        means = {name: column.mean(0).tolist() for name, column in told.new.items()}
        figures = [dict(zip(means, row, strict=True)) for row in zip(*means.values(), strict=True)]
        if figures:
            figures[-1]["uploaded_bytes"] = told.bytes_up
        rows = enumerate(figures, told.round - len(figures) + 1)
        some = "" if told.seeds == self._seeds else f", seed {' '.join(map(str, told.seeds))}"
        self.add(told.arm + some, rows)

    def open(self, run: str) -> None:
        """Begins a run, unless it has begun; what is wrong with a tracker shows here."""
        if run in self._runs:
            return
        settings = {"arm": run} | self._settings
        try:
            self._runs[run] = _OPEN[self._name](self._library, run, self._folder, settings)
        except Exception as error:  # whatever a service may raise
            raise RunError(f"{self._name} cannot be started: {_line(error)}") from error

    def add(self, run: str, rows: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Figures of rounds, counted from 1; what is no number is left out."""
        known = [(t, {key: float(value) for key, value in figures.items() if math.isfinite(value)})
                 for t, figures in rows]  # fmt: skip
        if not self._failed:
            self.open(run)
            self._try(lambda: self._runs[run].add(known))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            if not self._failed:
                log.warning("%s failed, the run goes on without it: %s", self._name, _line(error))
            self._failed = True


def _tensorboard(library: Any, run: str, folder: Path, settings: Mapping[str, Any]) -> Run:
    writer = library.Writer(str(folder / "tensorboard" / re.sub(r"[^\w.,=+-]", "_", run)))

    def add(rows: Rows) -> None:
        for t, figures in rows:
            for name, value in figures.items():
                writer.add_scalar(name, value, t)
        writer.flush()

    return Run(add, writer.close)


def _wandb(library: Any, run: str, folder: Path, settings: Mapping[str, Any]) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    # Arms run side by side.
    options = {"reinit": "create_new", "settings": library.Settings(console="off")}
    return _initialised(library, run, folder, settings, dir=str(folder), **options)


def _trackio(library: Any, run: str, folder: Path, settings: Mapping[str, Any]) -> Run:
    options = {"auto_log_gpu": False, "auto_log_cpu": False}
    # It ends the run before when another one begins in the same context.
    return contextvars.Context().run(_initialised, library, run, folder, settings, **options)


def _initialised(
    library: Any, run: str, folder: Path, config: Mapping[str, Any], /, **options: Any
) -> Run:
    """A run of Weights & Biases, whose calls Trackio has too."""
    group = folder.resolve().name
    made = library.init(project=_PROJECT, group=group, name=run, config=dict(config), **options)

    def add(rows: Rows) -> None:
        for t, figures in rows:
            made.log(dict(figures), step=t)

    return Run(add, made.finish)


def _mlflow(library: Any, run: str, folder: Path, settings: Mapping[str, Any]) -> Run:
    client, most = library.MlflowClient(), 1000  # figures of a batch
    experiment = library.set_experiment(_PROJECT).experiment_id
    made = client.create_run(experiment, run_name=run, tags={"folder": str(folder)}).info.run_id
    for key, value in settings.items():
        client.log_param(made, key, value)

    def add(rows: Rows) -> None:
        now = int(1000 * time.time())
        new = [library.entities.Metric(name, value, now, t)
               for t, figures in rows for name, value in figures.items()]  # fmt: skip
        for start in range(0, len(new), most):
            client.log_batch(made, metrics=new[start : start + most])

    return Run(add, lambda: client.set_terminated(made))


_OPEN = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
