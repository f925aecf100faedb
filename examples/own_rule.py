"""A rule of your own: a client speaks when it is loud, or when it was silent for too long.

python examples/own_rule.py
"""

# %% A rule is a few pure functions. The server keeps a state and broadcasts a context made from it;
# a client looks at its own stats and decides; the server learns from the tally of the round.
from typing import NamedTuple

import taciturn


class Loudness(NamedTuple):
    """The state, and what is broadcast: the mean norm of the last round."""

    mean: float
    share: float


def patient(share: float = 1.0, patience: int = 5) -> taciturn.Rule:
    """Speaks when the norm exceeds a share of the mean one, or after so many silent rounds."""

    def speaks(own: taciturn.ClientStats, context: Loudness):
        return (own.norm > context.share * context.mean) | (own.silence >= patience)

    return taciturn.Rule(
        "patient",
        (("share", share), ("patience", patience)),  # what it is equal by, and its text
        # Floats live in the state, so that one compiled program serves them all.
        init=lambda size, rounds: Loudness(0.0, share),
        speaks=speaks,
        learn=lambda state, tally: Loudness(tally.norms.mean, state.share),
        looks_at=("norm", "silence"),
    )


# %% One line gives it a name in texts.
taciturn.register("rule", patient)

# %% It is run beside others.
taciturn.prepare()
arms = {name: name for name in ("full", "patient:1.1+ignore", "patient,patience=2+ignore")}
for name, history in taciturn.compare("synthetic", arms, rounds=60, cohort=10, seeds=2).items():
    summary = history.summary()
    print(f"{name:28} {summary['accuracy_mean']:5.1f} % right, "
          f"{summary['upload_share']:5.1f} % of the uploads")  # fmt: skip
