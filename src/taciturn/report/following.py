"""Who is told of a simulation while it runs: the terminal, or a log file, and a tracker."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from taciturn.progress import Tell, to_all
from taciturn.report.terminal import Live
from taciturn.settings import Settings
from taciturn.track import Tracker


@contextmanager
def following(
    arms: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    quiet: bool = False,
    track: str | None = None,
    plain: bool = False,
) -> Iterator[Tell]:
    """A function to be told of progress, until the end of the block.

    Args:
      arms: their names.
      settings: those of the simulation, or more; a tracker shows them.
      folder: the run folder.
      quiet: whether the terminal shows nothing.
      track: the name of a tracker, if there is to be one.
      plain: whether seeds run one after another.
    """
    with ExitStack() as stack:
        tells: list[Tell] = []
        if not quiet:
            tells.append(stack.enter_context(Live(arms, settings)))
        if track is not None:
            tracker = Tracker(track, folder, asdict(settings), settings.all_seeds)
            tells.append(stack.enter_context(tracker))
            for arm in () if plain else arms:  # what is wrong shows before anything is compiled
                tracker.open(arm)
        yield to_all(*tells)
