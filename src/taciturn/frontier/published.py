"""Published figures that stand beside ours."""

from typing import NamedTuple


class Timed(NamedTuple):
    """A set-up of FLUTE's README: its clients, accuracy in % and time, and FedML's time."""

    clients: int
    accuracy: float
    flute: str
    fedml: str


# Hardware is not stated there. Of FEMNIST's writers all are used.
FLUTE = {
    "emnist": Timed(3400, 83, "8:22", "5:49:52"),
    "shakespeare": Timed(715, 57, "21:50", "6:46:21"),
}

# EDEN's own figure: points below float32 by bits, about one seed, read off its plots; the same
# models, rounds, cohorts and batches as the long experiments, with Adam on the server.
EDEN = {
    "emnist": {2: -0.1, 1: -0.3, 0.5: -0.6, 0.1: -1.4},
    "shakespeare": {2: -0.2, 1: -0.7, 0.5: -2.2, 0.1: -6.3},
}
