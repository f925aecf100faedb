"""What a simulation tells while it runs.

The engine and the plain loop are streams of chunks. One reader adds them up for people (`Totals`),
one writes them into the run folder, one makes histories of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np


class Compiling(NamedTuple):
    """A program is being compiled: nothing else happens for seconds."""

    runs: int  # side by side in it


class Group(NamedTuple):
    """Runs that go side by side, and how far they are: what a checkpoint keeps.

    Each of the arms runs with each of the seeds. `state` is what the next round begins with, a
    pytree of arrays, and in a chunk it is there until the next chunk is asked for. In a group that
    goes on it is a function that makes the pytree, given one of its form.
    """

    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    done: int = 0  # rounds
    lanes: int | None = None  # of every device; None where they are still to be chosen
    state: Any = None


class Chunk(NamedTuple):
    """Rounds that have just ended."""

    group: Group  # whose rounds, and how far it is now
    columns: Mapping[str, np.ndarray]  # (arms, seeds, rounds) each; NaN where nothing was tested
    seconds: np.ndarray  # wall time of each round, compilation left out, (rounds,)
    waiting: tuple[Group, ...] = ()  # the groups that come after this one
    weights: np.ndarray | None = None  # after the last round, (arms, seeds, size); None before
    participation: Any = None  # how often each client was asked and spoke in these rounds

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after it."""
        return self.weights is not None and not self.waiting

    @property
    def kept(self) -> Self:
        """The chunk without its state, whose memory the next one takes."""
        return self._replace(group=self.group._replace(state=None))


class Progress(NamedTuple):
    """How far an arm is, after every round or chunk of rounds; means are over seeds."""

    arm: str  # the name of the policy
    seed: int | None  # which run, or None where several of the arm are side by side
    round: int  # how many rounds are done
    accuracy: float  # the last mean measured, in [0, 1]; NaN before the first
    spoke: float  # how many clients spoke so far, on average
    asked: int  # how many were asked so far
    bytes_up: float  # bytes of updates uploaded so far, on average
    seeds: tuple[int, ...] = ()  # the runs that this is told of
    new: Mapping[str, np.ndarray] = {}  # of the rounds since the last one, (seeds, rounds) each


Tell = Callable[[Progress | Compiling], None]


def silence(_: Progress | Compiling) -> None:
    """Tells nobody."""


class Totals:
    """Adds chunks up: what people are told of them."""

    def __init__(self, cohort: int) -> None:
        self._cohort = cohort
        self._so_far: dict[Any, tuple[float, float, float]] = {}  # spoke, bytes, last accuracy

    def add(self, chunk: Chunk) -> list[Progress]:
        """How far the arms of the chunk are now."""
        arms, seeds, done, *_ = chunk.group
        seed, told = seeds[0] if len(seeds) == 1 else None, []
        for a, arm in enumerate(arms):
            new = {name: column[a] for name, column in chunk.columns.items()}
            spoke, sent, accuracy = self._so_far.get((arm, seeds), (0.0, 0.0, np.nan))
            spoke += float(new["spoke"].sum()) / len(seeds)
            sent += float(new["bytes_up"].sum()) / len(seeds)
            tested = new["accuracy"].mean(0)
            if (tested := tested[~np.isnan(tested)]).size:
                accuracy = float(tested[-1])
            self._so_far[arm, seeds] = spoke, sent, accuracy
            asked = done * self._cohort
            told.append(Progress(arm, seed, done, accuracy, spoke, asked, sent, seeds, new))
        return told
