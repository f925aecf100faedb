"""Arguments, checked: each returns the value, or raises an error that names the argument."""

import operator
import os
from pathlib import Path
from typing import Any

from taciturn.errors import InputError


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """`value` as a whole number of at least `least`, or an error that names the argument."""
    try:
        result = operator.index(value)
    except TypeError:
        raise InputError(f"`{name}` must be a whole number, got {value!r}.") from None
    if isinstance(value, bool) or result < least:
        raise InputError(f"`{name}` must be at least {least}, got {value!r}.")
    if most is not None and result > most:
        raise InputError(f"`{name}` must be at most {most}, got {value!r}.")
    return result


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    """`value` if it is one of `known`, or an error that lists them."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"`{name}` must be {' or '.join(known)}, got {value!r}.")
    return str(value)


def number(name: str, value: Any, interval: str) -> float:
    """`value` as a float in an interval such as `(0, 1]`, or an error that names both."""
    low, high = map(float, interval[1:-1].split(","))
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"`{name}` must be a number, got {value!r}.") from None
    above = result > low if interval[0] == "(" else result >= low
    below = result < high if interval[-1] == ")" else result <= high
    if isinstance(value, bool) or not (above and below):
        raise InputError(f"`{name}` must be in {interval}, got {value!r}.")
    return result


def flag(name: str, value: Any) -> bool:
    """`value` if it is True or False, or an error that names the argument."""
    if not isinstance(value, bool):
        raise InputError(f"`{name}` must be true or false, got {value!r}.")
    return value


def path_of(name: str, value: Any) -> Path:
    """`value` as a path that the system takes, or an error that names the argument."""
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise InputError(f"`{name}` must be a path, got {value!r}.")
    path = Path(value)
    try:
        str(path).encode()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError) as error:  # too long, below a file, with a null, not UTF-8
        reason = getattr(error, "strerror", None) or str(error).partition(":")[0]
        shown = ascii(str(path) if len(str(path)) < 100 else f"{str(path)[:80]}…")
        raise InputError(f"`{name}` cannot be {shown}: {reason}.") from None
    return path
