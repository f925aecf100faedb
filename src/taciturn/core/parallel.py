"""NumPy on several cores: it gives up the interpreter's lock while it computes, so threads do."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

WORKERS = min(4, os.cpu_count() or 1)
_ALONE = 1 << 18  # so few elements are done before a thread has started

_T = TypeVar("_T")


def in_parallel(work: Callable[[slice], _T], size: int, weight: int = 1) -> list[_T]:
    """`work` on parts that make up `range(size)`, each in a thread of its own.

    Args:
      work: what is done to a part.
      size: how many there are.
      weight: how many elements each of them stands for.
    """
    workers = 1 if size * weight < _ALONE else min(WORKERS, size)
    cuts = [slice(i * size // workers, (i + 1) * size // workers) for i in range(workers)]
    if workers == 1:
        return [work(cuts[0])]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, cuts))
