"""Which client trains in which lane, and when.

A lane trains clients one behind another. Clients differ in size, so the longest go first, each into
the lane that is free earliest (Graham's LPT rule): lanes end at nearly the same time, and no work
is done on padding beyond a client's last partial batch.
"""

from __future__ import annotations

import heapq

import numpy as np

_LATENCY = 16  # the cost of a step with no lanes, in lanes


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


def best_lanes(sample: np.ndarray, cohort: int, seeds: int, arms: int, multiple: int) -> int:
    """How many lanes make a round shortest, on a device that runs them at the same time.

    A step of L lanes is taken to cost L + `_LATENCY`: with few lanes, it is not their work that
    takes the time. The answer depends on the clients alone and not on the cohorts that a seed
    draws, so that runs with other seeds are the same program.

    Args:
      sample: local steps of a sample of the clients.
      cohort, seeds, arms: clients in a round, and runs side by side; arms ask the same clients.
      multiple: the number of lanes must be a multiple of this.
    """
    items = cohort * seeds * arms
    rng = np.random.default_rng(0)
    tries = max(1, min(16, 20_000 // items))
    rounds = [np.tile(rng.choice(sample, cohort * seeds), arms) for _ in range(tries)]
    most = -(-items // multiple)
    candidates = np.unique(np.geomspace(1, most, 32).round().astype(int)) * multiple
    costs = [
        (sum(makespan(steps, lanes) for steps in rounds) * (lanes + _LATENCY), lanes)
        for lanes in candidates
    ]
    return int(min(costs)[1])
