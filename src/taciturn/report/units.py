"""Numbers for people."""

from collections.abc import Mapping
from typing import Any

from taciturn.summary import Difference

_UNITS = ("B", "kB", "MB", "GB", "TB")
_TICKS = 7  # of an axis, whose texts find room beside each other


def unit(size: float) -> tuple[float, str]:
    """The largest unit that is not larger than `size`: how many bytes it has, and its name."""
    power = sum(size >= 1000**power for power in range(1, len(_UNITS)))
    return 1000.0**power, _UNITS[power]


def byte_text(count: float) -> str:
    """A number of bytes: 4.49 GB."""
    size, name = unit(count)
    return f"{count / size:.4g} {name}"


def percent(share: float | None, form: str) -> str:
    """A share in %; empty where there is none."""
    return "" if share is None else f"{share:{form}} %"


def score_text(figures: Mapping[str, Any], loss: str = "loss ") -> str:
    """Accuracy with its deviation over seeds; or loss, after the word that names it."""
    if figures.get("rejected_share") == 100:  # the accuracy is that of the first weights
        return "nothing learned"
    if (accuracy := figures["accuracy_mean"]) is not None:
        std = figures["accuracy_std"]
        return f"{accuracy:.2f}{'' if std is None else f' ± {std:.2f}'} %"
    mean = figures.get("loss_mean")
    return "not tested" if mean is None else f"{loss}{mean:.4g}"


def difference_text(figures: Mapping[str, Any]) -> str:
    """The difference to the first arm with its interval; empty where there is none."""
    found = figures.get("difference")
    return "" if found is None else str(Difference(**found))


def byte_axis(least: float, most: float) -> tuple[list[float], list[str]]:
    """Where a logarithmic axis of bytes has its ticks, and what they say: 1, 2, 3, …, 10, 20, …; on
    a long one, where these would touch, 1, 2, 5, 10, or 1, 10, 100."""
    for steps in (range(1, 10), (1, 2, 5), (1,)):
        ticks = [step * 10.0**power for power in range(15) for step in steps]
        ticks = [tick for tick in ticks if least <= tick <= most]
        if len(ticks) <= _TICKS:
            break
    return ticks, list(map(byte_text, ticks))
