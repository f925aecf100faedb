"""Which client trains in which lane, and when.

A lane trains clients one behind another. Clients differ in size, so the longest go first, each into
the lane that is free earliest (Graham's LPT rule): lanes end at nearly the same time, and no work
is done on padding beyond a client's last partial batch.
"""

from __future__ import annotations

import heapq

import numpy as np

# A few lanes less are worth a little waiting: the fewest are taken that lengthen a round by no
# more than this, measured on cohorts drawn from a sample of the clients.
_SLACK = 1.05


def pack(steps: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Assigns items to lanes.

    Args:
      steps: how many local steps each item takes.
      lanes: how many lanes there are.

    Returns:
      The items of every lane in order, (lanes, max(1, items − lanes + 1)), padded with 0; and how
      many of them there are in every lane, (lanes,).
    """
    items = len(steps)
    queue = np.zeros((lanes, max(1, items - lanes + 1)), np.int32)
    if lanes >= items:
        queue[:items, 0] = np.arange(items)
        return queue, (np.arange(lanes) < items).astype(np.int32)
    length = np.zeros(lanes, np.int32)
    free = [(0, lane) for lane in range(lanes)]
    for item in np.argsort(-steps, kind="stable"):
        until, lane = heapq.heappop(free)
        queue[lane, length[lane]] = item
        length[lane] += 1
        heapq.heappush(free, (until + int(steps[item]), lane))
    return queue, length


def makespan(steps: np.ndarray, lanes: int) -> int:
    """How many steps the longest lane takes."""
    queue, length = pack(steps, lanes)
    return max(int(steps[row[:n]].sum()) for row, n in zip(queue, length, strict=True))


def fewest_lanes(sample: np.ndarray, cohort: int, seeds: int, arms: int, multiple: int) -> int:
    """The fewest lanes that hardly lengthen a round.

    It depends on the clients alone and not on the cohorts that a seed draws, so that runs with
    other seeds are the same program.

    Args:
      sample: local steps of a sample of the clients.
      cohort, seeds, arms: clients in a round, and runs side by side; arms ask the same clients.
      multiple: the number of lanes must be a multiple of this.
    """
    rng = np.random.default_rng(0)
    rounds = [np.tile(rng.choice(sample, cohort * seeds), arms) for _ in range(16)]
    items = cohort * seeds * arms
    shortest = sum(int(steps.max()) for steps in rounds)
    low, high = 1, -(-items // multiple)
    while low < high:
        middle = (low + high) // 2
        if sum(makespan(steps, middle * multiple) for steps in rounds) <= _SLACK * shortest:
            high = middle
        else:
            low = middle + 1
    return low * multiple
