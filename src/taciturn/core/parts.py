"""What rules, stand-ins and codecs have in common: a name and the arguments they were made with."""

from dataclasses import dataclass, field
from typing import Any


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
