"""What programs keep on a device: one task's data at a time, whatever has been run before."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import taciturn
from taciturn.errors import InputError


def task(marker: int) -> taciturn.Task:
    """A task whose data can be told by their shape."""
    x = np.zeros((12, marker), np.float32)
    y = np.zeros(12, np.int32)
    loss, metrics = taciturn.classification(lambda p, x, key: x @ p["w"])
    return taciturn.Task(
        f"task {marker}", taciturn.Stored.of({"x": x, "y": y}, [4, 4, 4]),
        init=lambda key: {"w": jnp.zeros((marker, 2))}, loss=loss, metrics=metrics,
        test={"x": x, "y": y},
    )  # fmt: skip


def test_the_data_of_one_task_at_a_time() -> None:
    tasks = [task(marker) for marker in (1_001, 1_007)]
    for each in tasks:
        taciturn.simulate(each, "full", rounds=1, cohort=2)
    gc.collect()
    shapes = [array.shape for array in jax.live_arrays()]
    there = [each.name for each, m in zip(tasks, (1_001, 1_007), strict=True)
             if (12, m) in shapes]  # fmt: skip
    assert there == ["task 1007"]


def test_more_rows_than_an_index_can_name_are_refused() -> None:
    rows = [2**30, 2**30]
    nothing = np.broadcast_to(np.uint8(0), (2**31,))  # takes no memory
    with pytest.raises(InputError, match="may have 2³¹ − 1 rows, got 2147483648"):
        taciturn.Stored.of({"x": nothing}, rows)
    last = taciturn.Stored.of({"x": nothing[1:]}, [2**30, 2**30 - 1])
    assert last.starts.tolist() == [0, 2**30]
