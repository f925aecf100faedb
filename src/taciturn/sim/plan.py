"""Which client trains in which lane, and when.

A lane trains clients one after another. Clients differ in size, so the longest go first, each into
the lane that is free earliest (Graham's LPT rule): lanes end at nearly the same time, and no work
is done on padding beyond a client's last partial batch.
"""

import heapq

import numpy as np

_LATENCY = 16  # the cost of a step with no lanes, in lanes


def pack(steps: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """All items, lane by lane; and where each lane begins in them, with the end of the last lane.

    `steps` are how many local steps each item takes.
    """
    if lanes >= len(steps):
        return np.arange(len(steps), dtype=np.int32), _bounds(np.arange(lanes) < len(steps))
    owners = np.zeros(len(steps), np.int32)
    order = np.argsort(-steps, kind="stable")
    free = [(0, lane) for lane in range(lanes)]
    for item in order:
        until, lane = heapq.heappop(free)
        owners[item] = lane
        heapq.heappush(free, (until + int(steps[item]), lane))
    items = order[np.argsort(owners[order], kind="stable")].astype(np.int32)
    return items, _bounds(np.bincount(owners, minlength=lanes))


def _bounds(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def makespan(steps: np.ndarray, lanes: int) -> int:
    """How many steps the longest lane takes."""
    items, bounds = pack(steps, lanes)
    done = np.concatenate([[0], np.cumsum(steps[items], dtype=np.int64)])
    return int(np.diff(done[bounds]).max())


def best_lanes(sample: np.ndarray, cohort: int, seeds: int, arms: int, multiple: int) -> int:
    """How many lanes make a round shortest, on a device that runs them at the same time.

    A step of L lanes is taken to cost L + `_LATENCY`: with few lanes, it is not their work that
    takes the time. The answer depends on the clients alone and not on the cohorts that a seed
    draws, so that runs with other seeds are the same program.

    `sample` are local steps of some of the clients, arms ask the same clients, and the number of
    lanes is a multiple of `multiple`.
    """
    items = cohort * seeds * arms
    rng = np.random.default_rng(0)
    tries = max(1, min(16, 20_000 // items))
    rounds = [np.tile(rng.choice(sample, cohort * seeds), arms) for _ in range(tries)]
    most = -(-items // multiple)
    candidates = np.unique(np.geomspace(1, most, 32).round().astype(int)) * multiple
    longest = [sum(makespan(steps, lanes) for steps in rounds) for lanes in candidates]
    return int(candidates[np.argmin(longest * (candidates + _LATENCY))])
