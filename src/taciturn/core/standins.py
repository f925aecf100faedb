"""Stand-ins: what takes the place of a silent client's update."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from taciturn.checks import choice, flag
from taciturn.core import ou as _ou
from taciturn.core.arrays import Array, zeros
from taciturn.core.parts import Part


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StandIn(Part):
    """Estimates the update of a client that stays silent.

    Attributes:
      init: `(weights) -> state`, a tuple of vectors like the weights and of scalars.
      predict: `(state) -> update`, element-wise: a vector, or a scalar where all weights agree.
      learn: `(state, mean_update) -> state`, element-wise.
      counts: whether a silent client has a share in the mean at all.
      capped: whether the prediction is scaled down to the silent client's own norm.
      own: whether what a silent client said last itself stands in for it: the server then keeps an
        update for every client.
    """

    init: Callable[[Array], Any]
    predict: Callable[[Any], Array]
    learn: Callable[[Any, Array], Any]
    counts: bool = True
    capped: bool = False
    own: bool = False


def ou(mode: str = "constrained", cap: bool = False) -> StandIn:
    """The step that an Ornstein–Uhlenbeck fit to the path of mean updates expects next.

    Args:
      mode: "constrained" holds â in [0, 1], what an OU process allows; "paper" is the paper's
        unbounded least squares, which can explode in the first rounds.
      cap: scales Δ̂ by min(1, m_k / ‖Δ̂‖), so that it is never longer than the update it stands for.

    See `taciturn.core.ou` for the formulas.
    """
    constrained = choice("mode", mode, ("constrained", "paper")) == "constrained"
    return StandIn("ou", (("mode", mode), ("cap", flag("cap", cap))), init=_ou.init,
                   predict=lambda path: _ou.predict(path, constrained), learn=_ou.step,
                   capped=cap)  # fmt: skip


def zero() -> StandIn:
    """A silent client's model is taken to be the one it was sent: Δ̂ = 0."""
    return _nothing("zero")


def ignore() -> StandIn:
    """A silent client is left out of the mean and of its weights."""
    return _nothing("ignore", counts=False)


class Last(NamedTuple):
    """State of `last`: the mean update of the last round that counted."""

    update: Array


def last() -> StandIn:
    """The mean update of the last round again: the simple thing that `ou` has to beat."""
    return StandIn("last", init=lambda weights: Last(zeros(weights)),
                   predict=lambda state: state.update,
                   learn=lambda state, mean: Last(mean))  # fmt: skip


def own() -> StandIn:
    """What a silent client said when it last spoke, again; zero before it ever did.

    As in LAG, where a worker that has little to say is counted with its last gradient. There all
    workers are asked in every round; where cohorts are drawn, what is repeated is older.

    References:
      Chen, Giannakis, Sun, Yin. LAG: Lazily Aggregated Gradient for Communication-Efficient
      Distributed Learning, 2018.
    """
    return _nothing("own", own=True)


def _nothing(name: str, **fields: Any) -> StandIn:
    """A stand-in that is 0 and remembers nothing."""
    return StandIn(name, init=lambda weights: (), predict=lambda state: 0.0,
                   learn=lambda state, mean: state, **fields)  # fmt: skip
