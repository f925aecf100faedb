"""The real files, where TACITURN_DATA points to them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from taciturn.data import emnist_subset
from taciturn.sim import simulate
from taciturn.tasks import load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def emnist():
    return importlib.import_module("taciturn.data.emnist")


@pytest.fixture(scope="module")
def shakespeare():
    return importlib.import_module("taciturn.data.shakespeare")


def test_emnist_has_its_writers(real_data, emnist):
    dataset = emnist.read()
    whole = len(dataset.names) == 3_400
    assert dataset.summary() == {
        "clients": 3_400 if whole else 405,
        "train": 671_585 if whole else 59_725,
        "test": 77_483 if whole else 6_792,
        "left out": 0,
    }
    assert set(np.unique(dataset.train["y"])) == set(range(62))
    assert np.median(dataset.train["x"]) == 255  # white paper


def test_the_405_writers_are_what_the_subset_has(real_data, emnist, tmp_path):
    emnist_subset.write(tmp_path)
    dataset = emnist.read(tmp_path)
    assert (len(dataset.names), len(dataset.train["y"]), len(dataset.test["y"])) == (
        405, 59_725, 6_792)  # fmt: skip


def test_shakespeare_has_its_roles(real_data, shakespeare):
    dataset = shakespeare.read()
    assert dataset.summary() == {
        "clients": 715,
        "train": 37_784,
        "test": 5_490,
        "left out": 0,
        "train snippets": 16_068,
        "test snippets": 2_356,
    }
    assert dataset.train["x"].max() < shakespeare.VOCABULARY
    assert (dataset.train["x"][:, 1:] == dataset.train["y"][:, :-1]).all()
    task = load("shakespeare")
    assert task.clients.longest == 128


@pytest.mark.parametrize("name", ["emnist", "shakespeare"])
def test_a_round_trains(real_data, name):
    history = simulate(load(name), "full", rounds=1, cohort=2, lr=0.1)
    assert np.isfinite(history.loss[:, -1]).all()
