"""The experiments, with the reason for every setting.

A reason in quotes is the paper's sentence. `Open` says that the paper leaves it open, or
contradicts itself, and what was taken instead; "the code" is the first author's public code.
"""

import math
from collections.abc import Mapping
from typing import Any

from experiments.common.experiment import MATCHED, Experiment, Setting
from experiments.paper.author_sums import author_sums

# The paper has one run for each number and names no seed. Six are the fewest of which a sign test
# can tell anything; a rate takes many; a setting that is tried, few.
MANY, SEEDS, NEW, FEW = 20, 6, 5, 3

# The estimator in three forms: as the authors' code computes it, as printed, and Taciturn's.
AUTHORS, PRINTED, CONSTRAINED = "ou authors", "ou", "ou constrained"
STAND_INS = {
    AUTHORS: author_sums.__name__,
    PRINTED: "ou,mode=paper",
    CONSTRAINED: "ou",
    "zero": "zero",
    "ignore": "ignore",
}
UNWEIGHTED = " unweighted"  # in the names of arms whose threshold is of unweighted norms


def _arms(weighting: str, rule: str, names: Mapping[str, str]) -> dict[str, str]:
    """Arms of an adaptive rule, and the random ones that speak as often."""
    found = {f"adaptive{weighting} {name}": f"{rule}+{text}" for name, text in names.items()}
    return found | {
        f"random{weighting} {name}": f"random:{MATCHED}+{text}" for name, text in names.items()
    }


ARMS = {"full": "full"} | _arms("", "adaptive", STAND_INS)
_OURS = {name: text for name, text in STAND_INS.items() if name != AUTHORS}
ALL_ARMS = ARMS | _arms(UNWEIGHTED, "adaptive,weighted=false", _OURS)
# The main runs have bfloat16 products; the authors' estimator, whose rounding matters, has float32.
_MAIN_ARMS = {arm: text for arm, text in ALL_ARMS.items() if AUTHORS not in arm}
_ADAPTIVE = {arm: text for arm, text in ARMS.items() if not arm.startswith("random")}
# Those whose runs may collapse, which takes many seeds to count, and what they are compared with.
_OFTEN = dict.fromkeys(
    ("full", "adaptive ou", "adaptive zero", "adaptive ignore", "adaptive unweighted ou",
     "random ou"), MANY,
)  # fmt: skip

_ROUNDS = Setting(100, '"All the models are trained for 100 rounds."')
_COHORT = Setting(10, '"selecting N=10 clients at random in each round"')
_CURVE = Setting(5, "Ours: twenty points on a curve.")
_LAST = Setting(20, "Ours: the tables need the last round alone.")
_ONE_EPOCH = Setting(1, "Open: the code has E = 1.")
_LR = Setting(0.1, "Open: the code's default, plain SGD.")
_CLIP = Setting(
    1.0,
    "Open: the code clips every batch's gradient to this norm in `ou` and `ignore` and forgets to "
    "in `zero`. Here every arm is clipped alike.",
)

EMNIST = Experiment(
    "emnist",
    "EMNIST",
    "emnist",
    settings={
        "rounds": _ROUNDS,
        "cohort": _COHORT,
        "batch": Setting(
            10,
            "Open: the appendix prints B = 10, for another model; the code has 20; see the table "
            "of EMNIST's settings.",
        ),
        "epochs": Setting(
            2,
            "Open: the appendix prints E = 20, with N = 50, for another model, and the code has 1; "
            "see the table of EMNIST's settings.",
        ),
        "lr": _LR,
        "clip": _CLIP,
        "evaluate_every": _CURVE,
    },
    arms=_MAIN_ARMS,
    seeds=SEEDS,
    seeds_of=_OFTEN,
)

_FEW_ARMS = {arm: ARMS[arm] for arm in ("full", *(f"adaptive {name}" for name in _OURS))}


def _emnist(name: str, title: str, **changed: Any) -> Experiment:
    tried = {key: Setting(value, "Tried, because it is open.") for key, value in changed.items()}
    settings = {**EMNIST.settings, "evaluate_every": _LAST, **tried}
    return Experiment(
        f"emnist-{name}", f"EMNIST, {title}", "emnist", settings, _FEW_ARMS, seeds=FEW
    )


EMNIST_SETTINGS = (
    _emnist("e1-b20", "E = 1, B = 20", epochs=1, batch=20),
    _emnist("e3-b20", "E = 3, B = 20", epochs=3, batch=20),
    _emnist("no-clip", "E = 1, B = 20, no clipping", epochs=1, batch=20, clip=math.inf),
)

_SHAKESPEARE = {
    "limit": Setting(128, '"Each client\'s dataset is restricted to have at most 128 sentences"'),
    "weigh": Setting("tokens", "Open: n_k is the number of tokens in the code."),
}
_SHAKESPEARE_SETTINGS = {
    "rounds": Setting(
        120, '"after 120 rounds" in the tables by N; the main table reads round 100.'
    ),
    "cohort": _COHORT,
    "batch": Setting(
        4,
        "Open: what the hyperparameters of Reddi et al., which the paper refers to, say; the code "
        "has 20. See the table of Shakespeare's settings.",
    ),
    "epochs": _ONE_EPOCH,
    "lr": Setting(0.1, "Open: the code's default; see the table of Shakespeare's settings."),
    "clip": _CLIP,
    "evaluate_every": _CURVE,
}


def _shakespeare(
    name: str,
    title: str,
    settings: Mapping[str, Setting],
    arms: Mapping[str, str],
    options: Mapping[str, Setting] | None = None,
    **more: Any,
) -> Experiment:
    return Experiment(
        "-".join(filter(None, ("shakespeare", name))),
        ", ".join(filter(None, ("Shakespeare", title))),
        "shakespeare",
        _SHAKESPEARE_SETTINGS | dict(settings),
        arms,
        _SHAKESPEARE | dict(options or {}),
        **more,
    )


SHAKESPEARE = _shakespeare("", "", {}, _MAIN_ARMS, seeds=SEEDS, seeds_of=_OFTEN)
SHAKESPEARE_FAST = _shakespeare(
    "lr-1",
    "lr 1",
    {
        "rounds": _ROUNDS,
        "lr": Setting(
            1.0,
            "Open: the best rate of FedAvg in Reddi et al.; see the table of Shakespeare's "
            "settings.",
        ),
    },
    _ADAPTIVE,
    seeds=FEW,
)


def _by_cohort(cohort: int, few: int) -> Experiment:
    why = f'"with varying number of initial clients N": N = {cohort}.'
    settings = {"cohort": Setting(cohort, why), "evaluate_every": _LAST}
    arms = {arm: text for arm, text in ARMS.items() if arm != f"random {AUTHORS}"}
    seeds_of = dict.fromkeys((f"adaptive {AUTHORS}", "adaptive ignore"), few)
    return _shakespeare(str(cohort), f"N = {cohort}", settings, arms, seeds=NEW, seeds_of=seeds_of)


# A run with N = 50 takes half an hour on two cores.
BY_COHORT = {10: SHAKESPEARE, 20: _by_cohort(20, few=3), 50: _by_cohort(50, few=2)}

_SHORT = {"rounds": _ROUNDS, "evaluate_every": _LAST}
_TWO_ARMS = {arm: ARMS[arm] for arm in ("full", "adaptive ou")}


def _variant(name: str, title: str, batch: int | None = None, **options: Any) -> Experiment:
    """Another reading of the paper's text or code."""
    given = {} if batch is None else {"batch": Setting(batch, "The code's default.")}
    tried = {key: Setting(value, "Tried, because it is open.") for key, value in options.items()}
    return _shakespeare(name, title, _SHORT | given, _TWO_ARMS, tried, seeds=NEW)


VARIANTS = (
    _variant("sequences", "weights by sequences", weigh="sequences"),
    _variant("unlimited", "no limit of 128 sequences", limit=1_000_000),
    _variant(
        "unlimited-sequences", "no limit, weights by sequences", limit=1_000_000, weigh="sequences"
    ),
    _variant("batch-20", "batches of 20", batch=20),
)
# Open. Below, near and above EMNIST's adaptive thresholds, as they are printed.
THRESHOLDS = (0.35, 0.5, 0.65)
FIXED = Experiment(
    "fixed",
    "EMNIST, fixed thresholds",
    "emnist",
    EMNIST.settings,
    arms={
        f"{threshold} {name}": f"fixed:{threshold}+{text}"
        for threshold in THRESHOLDS
        for name, text in STAND_INS.items()
        if name != PRINTED  # what becomes of it is known from the adaptive threshold
    },
    seeds=FEW,
)

# Is it rounding? The same arms with float32 products.
_EXACT = {"precision": Setting("float32", "Ours: to exclude a numerical cause.")}
_NUMERIC_ARMS = {
    arm: ARMS[arm] for arm in ("full", "adaptive ou", f"adaptive {AUTHORS}", f"random {AUTHORS}")
}
_RANDOM = {f"random {AUTHORS}": FEW}
NUMERICS = (
    Experiment(
        "emnist-float32",
        "EMNIST, float32",
        "emnist",
        {**EMNIST.settings, "evaluate_every": _LAST, **_EXACT},
        _NUMERIC_ARMS,
        seeds=SEEDS,
        seeds_of=_RANDOM,
    ),
    _shakespeare(
        "float32", "float32", _SHORT | _EXACT, _NUMERIC_ARMS, seeds=SEEDS, seeds_of=_RANDOM
    ),
)

SYNTHETIC = Experiment(
    "synthetic",
    "Synthetic",
    "synthetic",
    {
        "rounds": _ROUNDS,
        "cohort": _COHORT,
        "batch": Setting(20, "Open: the code's default."),
        "epochs": _ONE_EPOCH,
        "lr": _LR,
        "clip": _CLIP,
        "evaluate_every": _CURVE,
    },
    ARMS,
    seeds=MANY,
)

MAIN = (EMNIST, SHAKESPEARE, SHAKESPEARE_FAST)
# In the order in which they matter.
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *MAIN, SYNTHETIC, FIXED, *NUMERICS, *EMNIST_SETTINGS, *BY_COHORT.values(), *VARIANTS,
    )
}  # fmt: skip
