"""The claim that weights under SGD move like an OU process."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.paper.checks import Check, Claim, check, not_run
from experiments.paper.comparing import compare
from experiments.paper.paths import CONTROLS
from taciturn.studies.difference import AHEAD, BEHIND, SAME

LIKE = 10.0  # points of a share of weights within which they do as a true OU process does
_WORDS = {AHEAD: "more", BEHIND: "fewer"}
_TESTS = {
    "increments pass for normal (Jarque–Bera, 5 %, last epoch)": "increments_normal_share",
    "increments of ten steps pass for normal": "increments_of_ten_steps_normal_share",
    "a pull to a mean is significant (Dickey–Fuller, 5 %), all steps": "unit_root_rejected_share",
    "the same in the last epoch": "unit_root_rejected_in_last_epoch_share",
}


def look_like_ou(measured: Sequence[Mapping[str, Any]]) -> Claim:
    """As printed: "the weights follow trajectories typical of OU sample paths"."""
    return Claim(
        "weights under SGD move like an OU process",
        f"the share of weights that pass is within {LIKE:g} points of that of paths of true OU "
        f"processes, with its whole interval. It says no where the interval lies outside; else "
        f"undecided. More, fewer and level are of a margin of {LIKE:g} points",
        [
            _passes(measured, what, key, control, name)
            for control, name in CONTROLS.items()
            for what, key in _TESTS.items()
        ],
    )


def _passes(
    measured: Sequence[Mapping[str, Any]], what: str, key: str, control: str, name: str
) -> Check:
    where = f"Fashion-MNIST, {name}"
    if not measured:
        return not_run(where, what)
    own = np.array([one[key] for one in measured])
    true = np.array([one[control][key] for one in measured])
    found = compare(own, true, LIKE, digits=1)
    shown = f"{own.mean():.0f} % of the weights, control {true.mean():.0f} %; {found.shown}"
    return check(where, what, found._replace(shown=shown), SAME, _WORDS)
