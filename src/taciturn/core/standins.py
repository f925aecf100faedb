"""Stand-ins: what takes the place of a silent client's update."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from taciturn.checks import flag
from taciturn.core import ou as _ou
from taciturn.core.arrays import Array, Scalar, namespace, ratio, zeros
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
      judge: `(state, speakers) -> state`, element-wise, before `learn` and where anybody spoke:
        is shown what the mean update is by the speakers alone. None where nothing is learned of it.
      own: whether a silent client is stood in for by what it said last itself: sums are not
        enough, the server keeps an update for every client.
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
    judge: Callable[[Any, Array], Any] | None = field(
        default=None, kw_only=True, compare=False, repr=False
    )
    own: bool = field(default=False, kw_only=True, compare=False, repr=False)
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


class Blend(NamedTuple):
    """State of `blend`: the path that the forecast is made from, and past errors.

    Attributes:
      path: that of mean updates, as in `ou`.
      before: what the mean update was by the speakers of the last round alone.
      surprise: by how much the speakers differed from the forecast, squared, weight by weight, and
        averaged with weights that fall by a tenth in every round.
      noise: half of what they differed by from those of the round before, in the same way.
    """

    path: _ou.Trajectory
    before: Array
    surprise: Array
    noise: Array


def blend() -> StandIn:
    r"""The OU forecast as the prior and the speakers as the measurement, weight by weight:

        Δ̂_k = (1 − g) · Δ̂ + g · Δ̂_k of `peers`,    g = P / (P + R) = max(0, 1 − R / (P + R))

    as in a Kalman filter. s_t is what the mean update is by the speakers alone, who change from
    round to round: R, their error, is the mean of (s_t − s_{t−1})² / 2; P + R, the forecast's and
    theirs, is that of (s_t − Δ̂)². Means are exponential, e ← 0.9 e + 0.1 (…)². The mean update
    itself is not what errors are measured against: it is made of both, and g would be a matter of
    how many speak, whatever they say.

    Before anything is known, the speakers are believed; where nobody spoke, the forecast stands
    alone.
    """
    return StandIn("blend", init=_first, predict=lambda state: _ou.predict(state.path),
                   learn=lambda state, mean: state._replace(path=_ou.step(state.path, mean)),
                   trust=_trust, judge=_judge)  # fmt: skip


_KEPT = 0.9  # what is left of an error after a round


def _first(weights: Array) -> Blend:
    return Blend(_ou.init(weights), zeros(weights), zeros(weights), zeros(weights))


def _judge(state: Blend, speakers: Array) -> Blend:
    def mean(before: Array, error: Array) -> Array:
        return _KEPT * before + (1 - _KEPT) * error * error

    # In the first round there is none before it.
    known = namespace(state.path.t).minimum(state.path.t, 1.0)
    return Blend(
        state.path,
        speakers,
        mean(state.surprise, speakers - _ou.predict(state.path)),
        mean(state.noise, known * 0.5**0.5 * (speakers - state.before)),
    )


def _trust(state: Blend) -> Array:
    """The share of the speakers, g; 1 where there was no surprise so far."""
    return namespace(state.noise).clip(1 - ratio(state.noise, state.surprise), 0.0, 1.0)


def own() -> StandIn:
    """What a silent client said when it last spoke, again; zero before it ever did.

    As in LAG, where a worker that has little to say is counted with its last gradient. There all
    workers are asked in every round; where cohorts are drawn, what is repeated is older. It needs
    more than sums: the server keeps an update for every client, as it was decoded.

    References:
      Chen, Giannakis, Sun, Yin. LAG: Lazily Aggregated Gradient for Communication-Efficient
      Distributed Learning, 2018.
    """
    return StandIn("own", init=_nothing, predict=lambda state: 0.0, learn=_same, own=True)


def _nothing(weights: Array) -> tuple[()]:
    return ()


def _same(state: Any, mean: Array) -> Any:
    return state
