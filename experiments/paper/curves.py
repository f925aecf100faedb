"""What the paper's figures share: looks of arms, and curves over seeds."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments.paper.experiments import STAND_INS
from taciturn.report.colours import GREY, colours
from taciturn.studies.results import Arm, Results

_TONES = colours([f"adaptive+{text}" for text in STAND_INS.values()])
COLOURS = {name: _TONES[f"adaptive+{text}"] for name, text in STAND_INS.items()}
_STYLES = {"adaptive": "-", "random": (0, (1.2, 1.2))}
SHADE, SEEDS = "shade", "seeds"  # what is drawn around a median


def arms_of(result: Results) -> Iterator[tuple[str, str, Any, Arm]]:
    """Name, colour, style and runs of the arms that curves are drawn of."""
    if "full" in result.arms:
        yield "full", GREY, (0, (5, 2)), result.arms["full"]
    for rule, style in _STYLES.items():
        for name, colour in COLOURS.items():
            arm = result.arms.get(f"{rule} {name}")
            if arm is not None:
                yield f"{rule} {name}", colour, style, arm


def curves(
    axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, label: str, style: Any = "-",
    around: str | None = None,
) -> None:  # fmt: skip
    """The median over seeds; around it a shade from the lowest to the highest, every seed as a
    thin line, or nothing."""
    axes.plot(x, np.median(y, axis=0), color=colour, ls=style, lw=1.7, label=label, zorder=3)
    if around == SEEDS and len(y) > 1:
        axes.plot(x, y.T, color=colour, ls=style, lw=0.6, alpha=0.45, zorder=2)
    elif around == SHADE and len(y) > 1:
        axes.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.15, lw=0)


def round_ticks(axes: Axes, last: int) -> None:
    """Five steps to the last round, which has a tick of its own."""
    axes.set_xticks(np.unique(np.round(np.linspace(0, last, 6)).astype(int)))
    axes.set_xlim(0, last)
