"""The real files, where TACITURN_DATA points to them."""

import numpy as np
import pytest

from taciturn.data import emnist, shakespeare
from taciturn.sim import simulate
from taciturn.tasks import load

pytestmark = pytest.mark.slow

WRITERS = {
    3_400: {"clients": 3_400, "train": 671_585, "test": 77_483, "left out": 0},
    405: {"clients": 405, "train": 59_725, "test": 6_792, "left out": 0},
}
ROLES = {"clients": 715, "train": 37_784, "test": 5_490, "left out": 0,
         "train snippets": 16_068, "test snippets": 2_356}  # fmt: skip


def test_emnist_has_its_writers(real_data):
    dataset = emnist.read()
    assert dataset.summary() == WRITERS[len(dataset.names)]
    assert set(np.unique(dataset.train["y"])) == set(range(62))
    assert np.median(dataset.train["x"]) == 255  # white paper


def test_shakespeare_has_its_roles(real_data):
    dataset = shakespeare.read()
    assert dataset.summary() == ROLES
    assert dataset.train["x"].max() < shakespeare.VOCABULARY
    assert (dataset.train["x"][:, 1:] == dataset.train["y"][:, :-1]).all()


@pytest.mark.parametrize("name", ["emnist", "shakespeare"])
def test_a_round_trains(real_data, name):
    history = simulate(load(name), "full", rounds=1, cohort=2, lr=0.1)
    assert np.isfinite(history.loss[:, -1]).all()
