"""A stand-in of your own: a silent client is taken to do a part of what was done last.

python examples/own_stand_in.py
"""

# %% A stand-in is three pure functions, element by element: `init` makes a state from the weights,
# `predict` says what a silent client's update is taken to be, `learn` sees the mean of every round.
from typing import Any, NamedTuple

import taciturn


class Memory(NamedTuple):
    """A mean of the last updates in which older ones fade."""

    update: Any
    fade: Any


def fading(fade: float = 0.5) -> taciturn.StandIn:
    """The mean of past updates, each round's weighing so much less than the next one's."""
    return taciturn.StandIn(
        "fading",
        (("fade", fade),),
        init=lambda weights: Memory(weights * 0, fade),
        predict=lambda state: state.update,
        learn=lambda state, mean: Memory(
            state.fade * state.update + (1 - state.fade) * mean, state.fade
        ),
    )


taciturn.register("stand-in", fading)

# %% Beside those of the package.
taciturn.prepare()
arms = {name: name for name in ("full", "adaptive,k=0+fading", "adaptive,k=0+fading:0.9")}
for name, history in taciturn.compare("synthetic", arms, rounds=60, cohort=10, seeds=2).items():
    summary = history.summary()
    print(f"{name:28} {summary['accuracy_mean']:5.1f} % right, "
          f"{summary['upload_share']:5.1f} % of the uploads")  # fmt: skip
