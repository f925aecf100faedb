"""What rules, stand-ins and codecs have in common: a name and the arguments they were made with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from taciturn.errors import InputError


@dataclass(frozen=True)
class Part:
    """A named part of a policy. Two parts are equal when name and arguments are.

    The functions of a part never close over a float argument: floats live in the part's state.
    `structure` is what the functions do depend on, so one compiled program serves every part of
    the same structure, whatever its numbers.
    """

    name: str
    params: tuple[tuple[str, Any], ...] = field(default=())

    @property
    def structure(self) -> tuple[Any, ...]:
        return (self.name, *(p for p in self.params if not isinstance(p[1], float)))


def number(name: str, value: Any, low: float, high: float, interval: str) -> float:
    """`value` as a float between low and high, or an error that names argument and interval.

    The brackets of `interval` say whether the ends belong to it.
    """
    try:
        result = float(value)
    except (TypeError, ValueError):
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
