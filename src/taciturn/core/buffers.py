"""Arrays of a model that are no weights, by the names that PyTorch, Flax and Keras give them."""

from fnmatch import fnmatchcase

PATTERNS = ("*running_mean", "*running_var", "*batch_stats*", "*moving_mean", "*moving_variance")


def is_buffer(name: str) -> bool:
    """Whether an array of this name is a running statistic, such as those of BatchNorm."""
    return any(fnmatchcase(name, pattern) for pattern in PATTERNS)
