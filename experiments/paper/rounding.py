"""Why do raw sums in float32 do better than exact ones? Between the two lie four arms.

The authors' sums, in float64, are the exact fit but for rounding. What float32 makes of a forecast
is taken apart: it is *dropped* where float32 has none, *shortened* to float32's length where that
is shorter, weight by weight, or *scaled* as a whole to float32's norm.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from experiments.common.experiment import Setting
from experiments.paper import author_sums
from experiments.paper.experiments import AUTHORS, PRINTED, STAND_INS
from taciturn.core.arrays import Array, norm, ratio
from taciturn.core.policy import register
from taciturn.core.standins import StandIn
from taciturn.report.versions import versions
from taciturn.sim import compare
from taciturn.tasks import load

NAME = "rounding"  # of its file
SETTINGS = {
    "rounds": Setting(100, '"All the models are trained for 100 rounds."'),
    "cohort": Setting(10, '"selecting N=10 clients at random in each round"'),
    "batch": Setting(10, "As in the main table."),
    "epochs": Setting(2, "As in the main table."),
    "lr": Setting(0.1, "As in the main table."),
    "clip": Setting(1.0, "As in the main table."),
    "precision": Setting("float32", "Ours: that of the products has no part in it."),
    "seeds": Setting(6, "Ours: the fewest of which a sign test can tell anything."),
}


class Both(NamedTuple):
    """The sums in both widths."""

    wide: Any
    narrow: Any


FORMS: Mapping[str, Callable[[Array, Array], Array]] = {
    "all": lambda wide, narrow: wide,
    "dropped": lambda wide, narrow: jnp.where(narrow == 0, 0.0, wide),
    "shortened": lambda wide, narrow: jnp.clip(wide, -jnp.abs(narrow), jnp.abs(narrow)),
    "scaled": lambda wide, narrow: wide * ratio(norm(narrow), norm(wide)),
}


def wide_sums(form: str = "all") -> StandIn:
    """The authors' sums in float64, and what `form` makes of their forecast."""
    narrow = author_sums.author_sums()

    def init(weights: Array) -> Both:
        return Both(narrow.init(jnp.astype(weights, jnp.float64)), narrow.init(weights))

    def predict(sums: Both) -> Array:
        both = narrow.predict(sums.wide), narrow.predict(sums.narrow)
        return jnp.astype(FORMS[form](*both), sums.narrow.weights.dtype)

    def learn(sums: Both, d: Array) -> Both:
        wide = narrow.learn(sums.wide, jnp.astype(d, jnp.float64))
        return Both(wide, narrow.learn(sums.narrow, d))

    return StandIn("wide_sums", (("form", form),), init=init, predict=predict, learn=learn)


ARMS = {"full": "full", AUTHORS: f"adaptive+{STAND_INS[AUTHORS]}",
        PRINTED: f"adaptive+{STAND_INS[PRINTED]}"}  # fmt: skip
ARMS |= {f"float64, {form}": f"adaptive+wide_sums,form={form}" for form in FORMS}
register("stand-in", wide_sums)


def run(data: Path | None) -> dict[str, Any]:
    """Accuracy of every arm and seed on EMNIST, in %, and the mean upload."""
    settings = {name: setting.value for name, setting in SETTINGS.items()}
    narrow = load("emnist", data=data)

    def init(key: jax.Array) -> Any:
        """The model in float32: with float64 allowed, it would be drawn in that."""
        drawn = narrow.init(key)
        return jax.tree.map(
            lambda x: jnp.astype(x, jnp.float32) if eqx.is_inexact_array(x) else x, drawn
        )

    with jax.enable_x64(True):
        task = replace(narrow, init=init)
        histories = compare(task, ARMS, evaluate_every=settings["rounds"], **settings)
    arms = {
        arm: {"accuracy": (100 * history.accuracy[:, -1]).round(4).tolist(),
              "spoke": history.spoke.mean(1).tolist()}
        for arm, history in histories.items()
    }  # fmt: skip
    return {"settings": settings, "arms": arms, "versions": versions()}
