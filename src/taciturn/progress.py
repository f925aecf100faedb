"""What a simulation tells while it runs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Compiling(NamedTuple):
    """A program is being compiled: nothing else happens for seconds."""

    runs: int  # side by side in it


class Progress(NamedTuple):
    """How far an arm is, after every round or chunk of rounds.

    Attributes:
      arm: the name of the policy.
      seed: which run, or None where all runs of the arm are side by side.
      round: how many rounds are done.
      accuracy: the last one measured, in [0, 1], mean over seeds; NaN before the first.
      spoke: how many clients spoke so far, mean over seeds.
      asked: how many were asked so far.
      bytes_up: bytes of updates uploaded so far, mean over seeds.
      seeds: the runs that this is told of.
      new: what was recorded of the rounds since it was last told, (seeds, rounds) each.
    """

    arm: str
    seed: int | None
    round: int
    accuracy: float
    spoke: float
    asked: int
    bytes_up: float
    seeds: tuple[int, ...] = ()
    new: Mapping[str, Any] = {}


Tell = Callable[[Progress | Compiling], None]


def silence(_: Progress | Compiling) -> None:
    """Tells nobody."""


def to_all(*tells: Tell) -> Tell:
    """Tells several."""

    def tell(told: Progress | Compiling) -> None:
        for one in tells:
            one(told)

    return tell
