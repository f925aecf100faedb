"""Stand-ins: what takes the place of a silent client's update."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from taciturn.checks import flag
from taciturn.core import ou as _ou
from taciturn.core.arrays import Array, Scalar, zeros
from taciturn.core.parts import Part
from taciturn.errors import InputError


@dataclass(frozen=True)
class StandIn(Part):
    """Estimates the update of a client that stays silent.

    Attributes:
      init: `(weights) -> state`, a tuple of vectors like the weights and of scalars.
      predict: `(state) -> update`, element-wise: a vector, or a scalar where all weights agree.
      learn: `(state, mean_update) -> state`, element-wise.
      growth: the same as `learn` where all it does is add: what each field of the state grows by,
        `(state, mean_update) -> vector or scalar`, in an order in which each can take the place of
        its old value.
      counts: whether a silent client has a share in the mean at all.
      capped: whether the prediction is scaled down to the silent client's own norm.
      trust: `(state) -> share`, from 0 to 1, of the speakers in what stands in, element-wise or
        one number: so much of it is their mean update, scaled by the silent client's norm over
        theirs, and the rest the prediction. None where they have no part in it.
      judge: `(state, mean_update, speakers) -> state`, element-wise, before `learn`: what the mean
        update would have been by the speakers alone is compared with it. None where nothing is.
      alone: whether it can stand in where nobody spoke; else such a round moves nothing.
    """

    init: Callable[[Array], Any] = field(kw_only=True, compare=False, repr=False)
    predict: Callable[[Any], Array] = field(kw_only=True, compare=False, repr=False)
    learn: Callable[[Any, Array], Any] = field(kw_only=True, compare=False, repr=False)
    growth: tuple[tuple[str, Callable[[Any, Array], Array]], ...] = field(
        default=(), kw_only=True, compare=False, repr=False
    )
    counts: bool = field(default=True, kw_only=True, compare=False, repr=False)
    capped: bool = field(default=False, kw_only=True, compare=False, repr=False)
    trust: Callable[[Any], Array | Scalar] | None = field(
        default=None, kw_only=True, compare=False, repr=False
    )
    judge: Callable[[Any, Array, Array], Any] | None = field(
        default=None, kw_only=True, compare=False, repr=False
    )
    alone: bool = field(default=True, kw_only=True, compare=False, repr=False)


def ou(mode: str = "constrained", cap: bool = False) -> StandIn:
    """The step that an Ornstein–Uhlenbeck fit to the path of mean updates expects next.

    Args:
      mode: "constrained" holds â in [0, 1], what an OU process allows; "paper" is the paper's
        unbounded least squares, which can explode in the first rounds.
      cap: scales Δ̂ by min(1, m_k / ‖Δ̂‖), so that it is never longer than the update it stands for.

    See `taciturn.core.ou` for the formulas.
    """
    if mode not in ("constrained", "paper"):
        raise InputError(f"`mode` must be constrained or paper, got {mode!r}.")
    constrained = mode == "constrained"
    return StandIn("ou", (("mode", mode), ("cap", flag("cap", cap))), init=_ou.init,
                   predict=lambda path: _ou.predict(path, constrained), learn=_ou.step,
                   growth=_ou.GROWTH, capped=cap)  # fmt: skip


def zero() -> StandIn:
    """A silent client's model is taken to be the one it was sent: Δ̂ = 0."""
    return StandIn("zero", init=_nothing, predict=lambda state: 0.0, learn=_same)


def ignore() -> StandIn:
    """A silent client is left out of the mean and of its weights."""
    return StandIn("ignore", init=_nothing, predict=lambda state: 0.0, learn=_same, counts=False)


class Last(NamedTuple):
    """State of `last`: the mean update of the last round that counted."""

    update: Array


def last() -> StandIn:
    """The mean update of the last round again: the simple thing that `ou` has to beat."""
    return StandIn("last", init=lambda weights: Last(zeros(weights)),
                   predict=lambda state: state.update,
                   learn=lambda state, mean: Last(mean))  # fmt: skip


def peers() -> StandIn:
    r"""The speakers' mean update, scaled by the silent client's norm over theirs:

        Δ̂_k = Σ_spoke n·Δ/p / Σ_spoke n·m/p · m_k

    Their norm is the mean of their norms, and not the norm of their mean: clients that differ in
    length alone, and point each in a direction of its own, are then right on average, where the
    norm of the mean, which is far shorter than they are, would make the silent too long. The mean
    of everyone becomes mean norm × mean direction of those who spoke, a ratio estimator with the
    norm as what is known of everyone. Sums are all it needs.

    Where nobody spoke there is nothing to stand in with: the model stays, as with `ignore`.

    References:
      Cochran. Sampling Techniques, 3rd edition, chapter 6, 1977.
    """
    return StandIn("peers", init=_nothing, predict=lambda state: 0.0, learn=_same,
                   trust=lambda state: 1.0, alone=False)  # fmt: skip


def _nothing(weights: Array) -> tuple[()]:
    return ()


def _same(state: Any, mean: Array) -> Any:
    return state
