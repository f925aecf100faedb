"""The experiments of the frontier, with the reason for every setting."""

from dataclasses import replace

from experiments.common.experiment import Experiment, Setting
from taciturn.frontier.folder import GRID, OWN

# What long runs have: full, the recommended policy, what it is made of, and the nearest rivals.
FEW = (
    "full", "budget", "silence + EDEN 0.1", "EDEN 1 bit", "EDEN 0.1 bits",
    "sparse ternary 1 %, feedback",
)  # fmt: skip
MORE = (
    *FEW, "silence, ignored", "EDEN 0.5 bits", "QSGD 2 bits", "optimal sampling 30 %", "FedPAQ",
)  # fmt: skip

_COHORT = Setting(10, "The paper's, and FLUTE's.")
_CLIP = Setting(1.0, "The paper's code.")
_CLIP_TOO = Setting(1.0, "The paper's code; FLUTE's configuration names none.")
_FLUTE = "FLUTE's published benchmark."
_OFTEN = Setting(5, "Ours: twenty points on a curve.")
_SELDOM = Setting(25, "Ours: half a hundred points on a curve.")
_SHAKESPEARE = {
    "limit": Setting(128, "The paper's."),
    "weigh": Setting("tokens", "The paper's code."),
}

EMNIST = Experiment(
    "emnist",
    "EMNIST, 100 rounds",
    "emnist",
    settings={
        "rounds": Setting(100, "The paper's."),
        "cohort": _COHORT,
        "epochs": Setting(2, "With B = 10 it gives the accuracy and thresholds that it printed."),
        "batch": Setting(10, "The paper's appendix."),
        "lr": Setting(0.1, "The paper's code."),
        "clip": _CLIP,
        "evaluate_every": _OFTEN,
    },
    arms=GRID,
    own=OWN,
    seeds=10,
    side_by_side=60,
)
SHAKESPEARE = Experiment(
    "shakespeare",
    "Shakespeare, 100 rounds",
    "shakespeare",
    options=_SHAKESPEARE,
    settings={
        "rounds": Setting(100, "The paper's."),
        "cohort": _COHORT,
        "epochs": Setting(1, "The paper's code."),
        "batch": Setting(4, "Reddi et al., whose hyperparameters the paper takes."),
        "lr": Setting(1.0, "Reddi et al.: the best rate of FedAvg."),
        "clip": _CLIP,
        "evaluate_every": _OFTEN,
    },
    arms=GRID,
    own=OWN,
    seeds=10,
    side_by_side=60,
)
EMNIST_LONG = Experiment(
    "emnist-long",
    "EMNIST, 1,500 rounds",
    "emnist",
    settings={
        "rounds": Setting(1500, _FLUTE),
        "cohort": _COHORT,
        "epochs": Setting(1, _FLUTE),
        "batch": Setting(20, _FLUTE),
        "lr": Setting(0.1, _FLUTE),
        "clip": _CLIP_TOO,
        "evaluate_every": _SELDOM,
    },
    arms={name: GRID[name] for name in MORE},
    seeds=5,
    side_by_side=25,
)
SHAKESPEARE_LONG = Experiment(
    "shakespeare-long",
    "Shakespeare, 1,200 rounds",
    "shakespeare",
    options=_SHAKESPEARE,
    settings={
        "rounds": Setting(1200, _FLUTE),
        "cohort": _COHORT,
        "epochs": Setting(1, _FLUTE),
        "batch": Setting(4, _FLUTE),
        "lr": Setting(0.8, _FLUTE),
        "clip": _CLIP_TOO,
        "evaluate_every": _SELDOM,
    },
    arms={name: GRID[name] for name in FEW},
    seeds=5,
    side_by_side=10,
)
PARKINSONS = Experiment(
    "parkinsons",
    "Parkinson's, numbers to predict",
    "table",
    options={
        "client": Setting("subject#", "A person is a client."),
        "label": Setting("motor_UPDRS", "The score of movement, a number to predict."),
        "leave_out": Setting(["total_UPDRS", "test_time"], "The other score, and the date."),
        "standardise": Setting(True, "Columns differ by orders of magnitude."),
    },
    settings={
        "rounds": Setting(500, "As in `benchmarks/real_table.py`."),
        "cohort": _COHORT,
        "evaluate_every": _SELDOM,
    },
    arms=GRID,
    own=OWN,
    seeds=10,
    file="parkinsons/parkinsons_updrs.tsv",
)
MAIN = (EMNIST, SHAKESPEARE, EMNIST_LONG, SHAKESPEARE_LONG, PARKINSONS)


def _alone(experiment: Experiment) -> Experiment:
    """One seed of full communication by itself, which is what others publish the time of."""
    return replace(
        experiment,
        name=f"{experiment.task}-alone",
        title=f"{experiment.title}, alone",
        arms={"full": "full"},
        seeds=1,
    )


ALONE = (_alone(EMNIST_LONG), _alone(SHAKESPEARE_LONG))
EXPERIMENTS = {experiment.name: experiment for experiment in (*MAIN, *ALONE)}
