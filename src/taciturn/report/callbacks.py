"""Who is told of a simulation while it runs: the terminal, or a log file, and a tracker."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from taciturn.progress import Compiling, Progress, Tell
from taciturn.report.terminal import Live
from taciturn.settings import Plan
from taciturn.track import Tracker


@contextmanager
def following(
    arms: Sequence[str], plan: Plan, folder: Path, quiet: bool = False, track: str | None = None
) -> Iterator[Tell]:
    """A block with a function that shows progress, unless `quiet`, and passes it on to the tracker
    called `track`."""
    with ExitStack() as stack:
        tells: list[Tell] = []
        if not quiet:
            tells.append(stack.enter_context(Live(arms, plan)))
        if track is not None:
            tracker = Tracker(track, folder, asdict(plan), plan.all_seeds)
            tells.append(stack.enter_context(closing(tracker)))
            # What is wrong shows before anything is compiled. Of the plain loop, a seed is a run.
            for arm in () if plan.plain else arms:
                tracker.open(arm)

        def tell(told: Progress | Compiling) -> None:
            for one in tells:
                one(told)

        yield tell
