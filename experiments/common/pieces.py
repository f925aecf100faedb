"""Runs experiments piece by piece; what is there is not run again.

An experiment has one JSON file: its settings, and a run for every arm and seed. It is saved after
every piece, which is as many runs as go side by side; a piece under way has a folder of its own,
with checkpoints. A run is known by its policy and its seed, so that a command that was stopped goes
on where it was, and one that asks for more seeds runs what is missing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from experiments.common.results_file import ResultsFile
from taciturn import runs
from taciturn.core.policy import parse
from taciturn.errors import Stopped
from taciturn.report import terminal
from taciturn.settings import Settings
from taciturn.sim import compare, fill_in
from taciturn.sim.history import History
from taciturn.studies import left_out
from taciturn.tasks import load
from taciturn.tasks.task import Task

if TYPE_CHECKING:
    from experiments.common.experiment import Experiment

Say = Callable[[str], None]


class Options(NamedTuple):
    """How an experiment is run.

    The most runs of a piece are `side_by_side`; by default the experiment's own number on a GPU,
    and one seed of every arm on a CPU.
    """

    folder: Path  # of the files
    precision: str | None = None  # of matrix products, see `ResultsFile`
    data: Path | None = None  # see `taciturn.data.sources`
    side_by_side: int | None = None
    again: Collection[str] = ()  # arms that are run whatever the file has of them


def run(experiment: Experiment, options: Options, say: Say) -> None:
    """Makes the runs of an experiment that its file lacks."""
    with runs.claimed(options.folder):
        file = ResultsFile(experiment, options.folder, options.precision)
        file.forget(options.again)
        task: Task | None = None
        for own, policies in experiment.side_by_side_arms():
            missing = file.missing(policies, own)
            if not missing:
                continue
            if task is None:
                task = load(experiment.task, data=options.data, **experiment.task_options)
                file.check_data(task)
            given = Settings(**{**file.settings, **own})
            if not own:  # these must fit the task
                fill_in(given, task)
            parsed = {arm: parse(text) for arm, text in policies.items()}
            for arm, why in left_out(given, task, parsed).items():
                if missing.pop(arm, None):
                    say(f"{experiment.title}: {arm} left out: {why}")
            most = _most(experiment, options, len(policies))
            for arms, seeds in cut(missing, *most):
                of = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
                say(f"{experiment.title}: {', '.join(arms)}; {of}")
                texts = {arm: policies[arm] for arm in arms}
                folder = file.folder_of(texts, seeds, own)
                if set(arms) & set(options.again):  # what was begun is of what they did before
                    shutil.rmtree(folder, ignore_errors=True)
                file.add(*_piece(task, texts, seeds, file.settings | dict(own), folder), own)
                shutil.rmtree(folder, ignore_errors=True)


def _most(experiment: Experiment, options: Options, arms: int) -> tuple[int, int]:
    """How many arms, and how many seeds of each, a piece has at the most."""
    most = options.side_by_side
    if most is None and jax.default_backend() == "cpu":
        return arms, 1
    most = most or experiment.side_by_side or arms * experiment.seeds
    seeds = min(experiment.seeds, most)
    return max(1, most // seeds), seeds


def cut(
    missing: Mapping[str, Sequence[int]], most_arms: int, most_seeds: int
) -> Iterator[tuple[list[str], list[int]]]:
    """The arms and seeds of each piece: arms that lack the same seeds go together."""
    together: dict[tuple[int, ...], list[str]] = {}
    for arm, seeds in missing.items():
        together.setdefault(tuple(seeds), []).append(arm)
    for lacking, arms in together.items():
        for i in range(0, len(arms), most_arms):
            for j in range(0, len(lacking), most_seeds):
                yield arms[i : i + most_arms], list(lacking[j : j + most_seeds])


def _piece(
    task: Task,
    policies: dict[str, str],
    seeds: Sequence[int],
    settings: dict[str, Any],
    folder: Path,
) -> tuple[dict[str, History], float]:
    """What came out of a piece, and the seconds that it took."""
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
