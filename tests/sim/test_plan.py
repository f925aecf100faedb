"""Packing: every item once, and lanes that end at nearly the same time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taciturn.sim import plan

items = st.lists(st.integers(1, 1000), min_size=1, max_size=40).map(np.array)


@given(items, st.integers(1, 50))
def test_every_item_is_in_one_lane_once(steps, lanes):
    order, bounds = plan.pack(steps, lanes)
    assert bounds.shape == (lanes + 1,)
    assert (order.dtype, bounds.dtype) == (np.int32, np.int32)
    assert sorted(order) == list(range(len(steps)))
    assert (bounds[0], bounds[-1]) == (0, len(steps))
    assert (np.diff(bounds) >= 0).all()


def test_the_longest_go_first_into_the_lane_that_is_free_earliest():
    order, bounds = plan.pack(np.array([2, 7, 3, 6, 1]), 2)
    assert bounds.tolist() == [0, 3, 5]
    assert order[:3].tolist() == [1, 0, 4]  # 7, then 2, then 1
    assert order[3:].tolist() == [3, 2]  # 6, then 3
    assert plan.makespan(np.array([2, 7, 3, 6, 1]), 2) == 10


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=20).map(np.array),
    st.integers(1, 8), st.integers(1, 3), st.integers(1, 4), st.integers(1, 8),
)  # fmt: skip
def test_lanes_are_a_multiple_and_no_more_than_needed(sample, cohort, seeds, arms, multiple):
    lanes = plan.best_lanes(sample, cohort, seeds, arms, multiple)
    assert lanes % multiple == 0
    assert multiple <= lanes < cohort * seeds * arms + multiple
    # Another time, the same: it must not depend on the seeds that are run.
    assert plan.best_lanes(sample, cohort, seeds, arms, multiple) == lanes


def test_lanes_follow_the_spread_of_the_clients():
    # Alike, all end together: every client has a lane.
    assert plan.best_lanes(np.array([10]), 20, 1, 1, 1) == 20
    # One in a hundred is long: a lane for each of the others would stand idle beside it.
    assert plan.best_lanes(np.array([1] * 99 + [1000]), 20, 1, 1, 1) < 20
