"""Buffers: arrays that are no weights, such as the running means and variances of BatchNorm.

Training moves them, but they are no updates: a codec's noise makes a variance negative, and so does
an optimiser's step. They always travel as they are, in silence too, and the model gets their mean.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

import numpy as np
from flwr.app import Array, ArrayRecord

# Of PyTorch, Flax and Keras.
PATTERNS = ("*running_mean", "*running_var", "*batch_stats*", "*moving_mean", "*moving_variance")
_VARIANCE = re.compile(r"(?<![a-z])var(iance)?\W*$")


def patterns_of(record: ArrayRecord) -> list[str]:
    """Names, or patterns of names, of a model's buffers."""
    named = [one for one in PATTERNS if any(fnmatchcase(name, one) for name in record)]
    return named + [name for pair in _numbered(record) for name in pair]


def variances_of(record: ArrayRecord) -> set[str]:
    """The names of arrays that are variances, if they are buffers."""
    named = {name for name in record if _VARIANCE.search(name)}
    return named | {variance for _, variance in _numbered(record)}


def _numbered(record: ArrayRecord) -> Iterator[tuple[str, str]]:
    """Means and variances among arrays that came as a list, and have numbers for names.

    PyTorch counts batches in a whole number behind them.
    """
    items = list(record.items())
    three = zip(items, items[1:], items[2:], strict=False)
    for (mean, first), (variance, second), (_, count) in three:
        if not mean.isdigit() or np.dtype(count.dtype).kind != "i" or tuple(count.shape):
            continue
        like = (first.dtype, tuple(first.shape)) == (second.dtype, tuple(second.shape))
        if like and len(second.shape) == 1 and np.dtype(second.dtype).kind == "f":
            values = second.numpy()
            if (values >= 0).all() and values.any():
                yield mean, variance


def not_negative(array: Array) -> Array:
    """The array, with 0 for what is below."""
    values = array.numpy()
    return Array(np.maximum(values, 0, out=values)) if (values < 0).any() else array
