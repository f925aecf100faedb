"""Ahead, behind, level or undecided; and what a collapse is."""

import numpy as np
import pytest

from taciturn.paper import comparing
from taciturn.paper.comparing import compare
from taciturn.paper.experiments import EMNIST
from taciturn.studies.difference import AHEAD, BEHIND, SAME, UNDECIDED
from taciturn.studies.results import Arm, Results

ONE_TO_FIVE = np.arange(1.0, 6.0)


def test_the_interval_is_students():
    found = compare(ONE_TO_FIVE, np.zeros(5))
    half = 2.776 * np.sqrt(2.5 / 5)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), rel=1e-3)
    assert found.shown == "+3.00 [+1.04, +4.96], n = 5"


@pytest.mark.parametrize(
    ("difference", "word"),
    [
        (3 + ONE_TO_FIVE, AHEAD),
        (-3 - ONE_TO_FIVE, BEHIND),
        (0.01 * (ONE_TO_FIVE - 3), SAME),
        (ONE_TO_FIVE - 3, UNDECIDED),  # zero is in it, and so is a point
        (0.01 * ONE_TO_FIVE, AHEAD),  # by little, but surely
        (np.array([4.0]), UNDECIDED),  # one seed decides nothing
    ],
)
def test_level_is_within_the_margin_and_undecided_is_not_level(difference, word):
    assert compare(difference, np.zeros(len(difference)), margin=0.5).word == word


def test_without_a_margin_nothing_is_level():
    assert compare(0.01 * (ONE_TO_FIVE - 3), np.zeros(5)).word == UNDECIDED


@pytest.mark.parametrize(
    ("difference", "word", "p"),
    [
        ([1, 2, 3, 4, 5, 60], AHEAD, "0.031"),
        ([-1, -2, -3, -4, -5, -60], BEHIND, "0.031"),
        ([1, 2, 3, 4, 60], UNDECIDED, "0.062"),  # five seeds are too few for signs
        ([1, 2, 3, 4, 5, -60], UNDECIDED, "0.22"),
        ([0, 0, 0], UNDECIDED, "1"),
    ],
)
def test_signs_are_those_of_the_sign_test(difference, word, p):
    found = compare(np.array(difference), np.zeros(len(difference)), signs=True)
    above = sum(d > 0 for d in difference)
    assert found.word == word
    assert found.shown.endswith(f"above 0 in {above} of {len(difference)} seeds, p = {p}")
    assert found.low == -np.inf


def arms(**finals):
    return {
        name: Arm("", tuple(seeds), np.array([100]), np.array(ends, float)[:, None],
                  np.ones((len(ends), 1)), np.ones((len(ends), 100)), np.ones((len(ends), 100)))
        for name, (seeds, ends) in finals.items()
    }  # fmt: skip


def of(**finals):
    return Results(EMNIST, 100, 10, 1000, arms(**finals), (), {}, {})


def test_a_run_has_collapsed_five_points_below_full_with_its_seed():
    result = of(full=([0, 1, 2], [80, 70, 80]), ou=([2, 1, 0], [75.1, 65.1, 74.9]))
    assert comparing.collapsed(result, "ou", 100).tolist() == [False, False, True]
    assert comparing.of_all(comparing.collapsed(result, "ou", 100)) == "1 of 3"


def test_seeds_that_both_have_are_compared_and_signs_where_one_collapsed():
    result = of(
        full=(range(8), [80] * 8),
        ou=(range(8), [81, 82, 81, 82, 81, 82, 5, 5]),
        zero=(range(6), [80, 80, 80.5, 80, 80, 80.5]),
    )
    both = comparing.accuracies(result, "ou", "zero", 100)
    assert (both.word, both.shown[-5:]) == (AHEAD, "n = 6")
    with_full = comparing.accuracies(result, "ou", "full", 100)
    assert "above 0 in 6 of 8 seeds" in with_full.shown
