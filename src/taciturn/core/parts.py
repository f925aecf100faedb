"""What rules, stand-ins and codecs have in common: a name and the arguments they were made with."""

import re
from dataclasses import dataclass
from typing import Any

from taciturn.core.amounts import Amount
from taciturn.errors import InputError


@dataclass(frozen=True)
class Part:
    """A named part of a policy; two are equal where kind, name and arguments are.

    The functions of a part never close over a float or an amount: these live in its state.
    `structure` is what the functions do depend on, so that one compiled program serves every part
    of the same structure.
    """

    name: str
    params: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"\w[\w.-]*", self.name):
            raise InputError(
                f"`name` of a part must be a word of letters, digits, `_`, `-` and `.`, got "
                f"{self.name!r}."
            )

    @property
    def structure(self) -> tuple[Any, ...]:
        return (self.name, *(p for p in self.params if not isinstance(p[1], float | Amount)))
