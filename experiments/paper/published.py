"""The paper's numbers, as printed."""

from typing import NamedTuple


class Row(NamedTuple):
    """A line of the main table for one data set."""

    accuracy: float  # %
    gib: float  # printed as Gb
    share: float  # of full communication, %


class Threshold(NamedTuple):
    """A cell of the table of thresholds; None where nothing is printed."""

    mean: float | None
    deviation: float | None  # over rounds


class DataSet(NamedTuple):
    """A line of the tables of data sets and models."""

    users: str
    samples: str
    layers: tuple[int, ...]  # trainable parameters
    total: str


# By task. Where text and table differ, both are here.
DATA_SETS = {
    "emnist": DataSet(
        "3.4 K (table), 3,843 (text)",
        "60 K",
        (320, 18_496, 1_179_776, 7_998),
        "1,206,590 (table), 1,663,370 (text)",
    ),
    "shakespeare": DataSet(
        "715 (table), 725 (text)",
        "16 K",
        (720, 271_360, 525_312, 23_130),
        "4,050,748 (table), just under 1 M (text)",
    ),
    "synthetic": DataSet("100", "10,000", (), ""),
}

# By task and arm; random and adaptive `ou` are compared with both estimators.
MAIN = {
    "emnist": {
        "full": Row(76.51, 4.5, 100),
        "adaptive ou": Row(69.67, 3.15, 70),
        "adaptive zero": Row(65.25, 3.01, 68.9),
        "adaptive ignore": Row(68.69, 1.85, 41.1),
        "random ou": Row(69.58, 3.16, 70.34),
        "random zero": Row(64.11, 3.17, 70.6),
        "random ignore": Row(68.91, 1.75, 38.9),
    },
    "shakespeare": {
        "full": Row(22.86, 3.1, 100),
        "adaptive ou": Row(23.3, 1.53, 49.9),
        "adaptive zero": Row(22.18, 1.44, 47),
        "adaptive ignore": Row(22.23, 1.41, 46.1),
        "random ou": Row(4.56, 1.46, 47.9),
        "random zero": Row(18.22, 1.45, 47.3),
        "random ignore": Row(18.06, 1.39, 45.4),
    },
}

# Shakespeare after 120 rounds, accuracy in %, by arm and N.
ACCURACY_BY_COHORT = {
    "adaptive ou": {10: 23.3, 20: 23.96, 50: 25.17},
    "adaptive ignore": {10: 22.22, 20: 23.37, 50: 24.31},
    "adaptive zero": {10: 22.18, 20: 23.06, 50: 24.78},
    "random ou": {10: 4.98, 20: 0.0, 50: 24.51},
    "random ignore": {10: 18.05, 20: 20.57, 50: 21.24},
    "random zero": {10: 18.22, 20: 18.26, 50: 21.03},
    "full": {10: 22.8, 20: 23.55, 50: 26.63},
}

# Shakespeare, share of full communication in %, by arm and N.
SHARE_BY_COHORT = {
    "adaptive ou": {10: 46.6, 20: 47.43, 50: 48.95},
    "adaptive ignore": {10: 46.02, 20: 47.14, 50: 48.93},
    "adaptive zero": {10: 47.3, 20: 47.98, 50: 49.13},
}

# Mean threshold over rounds and, where it is printed, its deviation over rounds.
THRESHOLD = {
    "emnist": {
        "adaptive ou": Threshold(0.476, 0.03),
        "adaptive zero": Threshold(0.459, 0.0),
        "adaptive ignore": Threshold(0.515, 0.24),
    },
    "shakespeare": {
        "adaptive ou": Threshold(0.746, None),
        "adaptive zero": Threshold(0.776, None),
        "adaptive ignore": Threshold(0.775, None),
    },
}
