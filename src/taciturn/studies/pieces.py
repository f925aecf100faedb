"""Runs experiments piece by piece; what is there is not run again.

An experiment has one JSON file: its settings, and a run for every arm and seed. It is saved after
every piece, which is as many runs as go side by side; a piece under way has a folder of its own,
with checkpoints. A run is known by its policy and its seed, so that a command that was stopped goes
on where it was. One that asks for more seeds runs what is missing, and the random arms, whose
probability changes with them; runs of seeds that are not asked for stay in the file.
"""

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from taciturn.core.policy import parse
from taciturn.data import places
from taciturn.errors import DataError, InputError, Stopped
from taciturn.report import terminal
from taciturn.settings import Settings
from taciturn.sim import compare, doubts, fill_in
from taciturn.sim.history import History
from taciturn.studies.experiment import MATCHED, Experiment
from taciturn.studies.results import Results
from taciturn.studies.results_file import ResultsFile, claimed
from taciturn.tasks import load
from taciturn.tasks.task import Task

_T = TypeVar("_T")


class Options(NamedTuple):
    """What a user may choose.

    Attributes:
      folder: where the files are.
      seeds: how many of every arm; the experiment's own numbers by default.
      rounds: how many; the experiment's own by default.
      precision: of matrix products; by default that of the runs that are there, and for new ones
        bfloat16 on a GPU and float32 elsewhere.
      data: where the data lie, see `taciturn.data.places`.
      side_by_side: the most runs of a piece; by default the experiment's own number on a GPU, and
        one seed of every arm on a CPU.
      again: arms that are run whatever the file has of them.
    """

    folder: Path
    seeds: int | None = None
    rounds: int | None = None
    precision: str | None = None
    data: Path | None = None
    side_by_side: int | None = None
    again: Collection[str] = ()


def run(experiment: Experiment, options: Options, say: Callable[[str], None]) -> Results:
    """Runs what is missing of an experiment and gives all of it."""
    with claimed(options.folder / f"{experiment.name}.json"):
        return _run(experiment, options, say)


def _run(experiment: Experiment, options: Options, say: Callable[[str], None]) -> Results:
    file = ResultsFile(experiment, options.folder, options.seeds, options.rounds, options.precision)
    file.forget(options.again)
    if left := [arm for arm in options.again if arm not in experiment.arms]:
        raise InputError(f"{', '.join(left)} would be run again, and is none of the policies that "
                         f"were asked for.")  # fmt: skip
    # `random` needs the rates of the adaptive arms.
    adaptive = {name: text for name, text in experiment.arms.items() if MATCHED not in text}
    matched = [name for name in experiment.arms if name not in adaptive]
    task: Task | None = None
    left_out: set[str] = set()
    for phase in (1, 2):
        policies = adaptive if phase == 1 else {name: file.matched(name) for name in matched}
        if not policies:
            continue
        most = _most(experiment, options, len(policies), max(map(file.seeds_of, policies)))
        for own, some in experiment.apart(policies):
            settings = {**file.settings, **own}
            for arms, seeds in cut(file.missing(some, own), *most):
                if task is None:
                    task = _task(experiment, options.data)
                    file.check_data(task)
                if own and (why := _refused(task, settings)):
                    say(f"{experiment.title}: {', '.join(arms)} left out: {why}")
                    break
                for name, why in _doubts(task, arms, some, settings).items():
                    if name not in left_out:
                        say(f"{experiment.title}: {name} left out: {why}")
                        left_out.add(name)
                arms = [name for name in arms if name not in left_out]
                if not arms:
                    continue
                of = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
                say(f"{experiment.title}: {', '.join(arms)}; {of}")
                texts = {name: some[name] for name in arms}
                folder = file.folder_of(texts, seeds, own)
                if set(arms) & set(options.again):  # what was begun is of what they did before
                    shutil.rmtree(folder, ignore_errors=True)
                file.add(*_piece(task, texts, seeds, settings, folder), own)
                shutil.rmtree(folder, ignore_errors=True)
    return file.results()


def _refused(task: Task, settings: dict[str, Any]) -> str:
    """Why settings of an arm's own do not fit a task, such as one with few clients; else empty."""
    try:
        fill_in(Settings(**settings), task)
    except InputError as error:
        return str(error)
    return ""


def _doubts(
    task: Task, arms: Sequence[str], texts: Mapping[str, str], settings: dict[str, Any]
) -> dict[str, str]:
    """Which of the arms have a budget that cannot be kept on the task, and why."""
    policies = {name: parse(texts[name]) for name in arms}
    return doubts(task, policies, settings["cohort"], settings["rounds"])


def _most(experiment: Experiment, options: Options, arms: int, seeds: int) -> tuple[int, int]:
    """How many arms, and how many seeds of each, a piece has at the most."""
    runs = options.side_by_side
    if runs is None and jax.default_backend() == "cpu":
        return arms, 1
    runs = runs or experiment.side_by_side or arms * seeds
    seeds = min(seeds, runs)
    return max(1, runs // seeds), seeds


def cut(
    missing: Mapping[str, Sequence[int]], most_arms: int, most_seeds: int
) -> Iterator[tuple[list[str], list[int]]]:
    """The arms and seeds of each piece: arms that lack the same seeds go together."""
    together: dict[tuple[int, ...], list[str]] = {}
    for arm, seeds in missing.items():
        together.setdefault(tuple(seeds), []).append(arm)
    for lacking, arms in together.items():
        for some in _chunks(arms, most_arms):
            for seeds in _chunks(lacking, most_seeds):
                yield some, seeds


def _chunks(items: Sequence[_T], most: int) -> Iterator[list[_T]]:
    for start in range(0, len(items), most):
        yield list(items[start : start + most])


def _task(experiment: Experiment, data: Path | None) -> Task:
    where: Path | None = data
    if experiment.file is not None:
        folder = places.given(data)
        if folder is None:
            raise DataError(
                f"{experiment.title} needs {experiment.file}: `--data` or TACITURN_DATA names the "
                f"folder that it lies in."
            )
        where = folder if folder.is_file() else folder / experiment.file
    return load(experiment.task, data=where, **experiment.task_options())


def _piece(
    task: Task,
    policies: dict[str, str],
    seeds: Sequence[int],
    settings: dict[str, Any],
    folder: Path,
) -> tuple[dict[str, History], float]:
    began = time.perf_counter()
    given = settings | {"seeds": tuple(seeds)}
    try:
        with terminal.Live(list(policies), Settings(**given)) as live:
            histories = compare(task, policies, progress=live, folder=folder, **given)
    except Stopped as stopped:
        raise Stopped(f"{stopped} The same command goes on.", stopped.signal) from None
    # Rounds of before it was stopped count too.
    rounds = float(next(iter(histories.values())).seconds.sum())
    return histories, max(time.perf_counter() - began, rounds)
