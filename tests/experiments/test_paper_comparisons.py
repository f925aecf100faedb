"""Ahead, behind, level or undecided; and what a collapse is."""

import numpy as np
import pytest
from experiments.paper import comparing
from experiments.paper.comparing import compare
from experiments.paper.experiments import EMNIST

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
        ([0, 0, 1, 2, 3, 4, 5, 6], AHEAD, "0.031"),  # ties do not count
    ],
)
def test_signs_are_those_of_the_sign_test(difference, word, p):
    found = compare(np.array(difference), np.zeros(len(difference)), signs=True)
    above, below = sum(d > 0 for d in difference), sum(d < 0 for d in difference)
    assert found.word == word
    assert found.shown.endswith(
        f"above 0 in {above} and below in {below} of {len(difference)} seeds, p = {p}"
    )
    assert found.low == -np.inf


@pytest.mark.parametrize(
    ("difference", "told"),
    [
        (0.01 * ONE_TO_FIVE, "ahead, by less than 0.5"),
        (-0.01 * ONE_TO_FIVE, "behind, by less than 0.5"),
        (0.4 + 0.05 * ONE_TO_FIVE, "ahead"),  # more than the margin is in the interval
        (3 + ONE_TO_FIVE, "ahead"),
        (0.01 * (ONE_TO_FIVE - 3), "level"),
    ],
)
def test_what_is_sure_but_small_is_said_so(difference, told):
    assert compare(difference, np.zeros(5), margin=0.5).told() == told


@pytest.mark.parametrize(
    ("difference", "inside", "outside"),
    [
        ([0.1, 0.2, 0.1, 0.2, 0.1, 0.2], True, False),
        ([0.1, 0.2, 0.1, 0.2, 0.1, 60], False, False),  # five of six are too few
        ([7, 8, 9, 7, 8, 60], False, True),
        ([7, 8, 9, -7, -8, -60], False, False),  # outside, but on both sides
    ],
)
def test_signs_tell_whether_a_difference_is_within_a_margin(difference, inside, outside):
    found = compare(np.array(difference), np.zeros(6), 0.5, signs=True)
    assert (found.inside, found.outside) == (inside, outside)
    near = sum(abs(d) < 0.5 for d in difference)
    assert found.shown.endswith(f"; within ±0.5 in {near}")
    assert found.told().endswith(", by less than 0.5") == inside


def test_tiny_figures_are_shown_as_what_they_are():
    many = compare(-0.00012 * np.ones(20), np.zeros(20), signs=True)
    assert many.shown == "median −0.0001, above 0 in 0 and below in 20 of 20 seeds, p < 0.0001"


def test_other_words_take_the_place_of_ahead_and_behind():
    small = compare(0.01 * ONE_TO_FIVE, np.zeros(5), margin=0.5)
    assert small.told({AHEAD: "more"}) == "more, by less than 0.5"


def test_digits_are_enough_to_see_on_which_side_an_interval_ends():
    low, high = compare(ONE_TO_FIVE, np.zeros(5)).low, compare(ONE_TO_FIVE, np.zeros(5)).high
    assert "[−0.001, +3.925]" in compare(ONE_TO_FIVE - low - 0.001, np.zeros(5)).shown
    assert "[−3.427, +0.499]" in compare(ONE_TO_FIVE - high + 0.499, np.zeros(5), 0.5).shown
    assert "[+0.00, +0.00]" in compare(np.zeros(5), np.zeros(5)).shown  # it ends there


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


def test_a_run_that_gives_a_constant_answer_has_collapsed_where_full_does_better():
    finals = {"full": (range(4), [22, 22, 19.4, 18.6]), "ou": (range(4), [19.4, 19.6, 18.5, 18.5])}
    result = of(**finals)
    assert not comparing.collapsed(result, "ou", 100).any()  # within five points
    known = result._replace(data={"constant": 18.5})
    # No more than a point above the constant answer; above that; full is 0.9 and 0.1 above it.
    assert comparing.collapsed(known, "ou", 100).tolist() == [True, False, False, False]


def test_seeds_that_both_have_are_compared_and_signs_where_one_collapsed():
    result = of(
        full=(range(8), [80] * 8),
        ou=(range(8), [81, 82, 81, 82, 81, 82, 5, 5]),
        zero=(range(6), [80, 80, 80.5, 80, 80, 80.5]),
    )
    both = comparing.accuracies(result, "ou", "zero", 100)
    assert (both.word, both.shown[-5:]) == (AHEAD, "n = 6")
    with_full = comparing.accuracies(result, "ou", "full", 100)
    assert "above 0 in 6 and below in 2 of 8 seeds" in with_full.shown
