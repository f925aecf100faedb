"""What tasks are asked for, checked."""

from __future__ import annotations

import operator
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
    if value not in known:
        raise InputError(f"`{name}` must be {' or '.join(known)}, got {value!r}.")
    return str(value)
