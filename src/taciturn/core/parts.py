"""What rules, stand-ins and codecs have in common: a name and the arguments they were made with.

Amounts of upload are as people write them: `1%` of what float32 takes, `200kB`, `2GB`.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

from taciturn.errors import InputError

_UNITS = {"%": 0.01, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
          "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}  # fmt: skip
_FORM = re.compile(r"\s*((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e-?[0-9]+)?)\s*(%|[kmgt]?i?b)\s*", re.I)


def digits(number: float) -> str:
    """A short text that reads back as this number, without the + at which policies are cut."""
    text = repr(float(number)).removesuffix(".0")
    return f"{number:.0f}" if "e+" in text else text


@dataclass(frozen=True)
class Amount:
    """A share of the float32 upload, or bytes; printed as it was written."""

    value: float
    is_share: bool
    text: str = field(compare=False)

    @classmethod
    def of(cls, text: Any) -> "Amount":
        """The amount that a text describes."""
        found = _FORM.fullmatch(str(text))
        units = [unit for unit in _UNITS if found and unit.lower() == found[2].lower()]
        number = float(found[1]) if found and units else 0.0
        if not 0 < number < math.inf:
            raise InputError(
                f"An amount must be above 0 and have a unit, as in 1%, 200kB or 2GB, got {text!r}."
            )
        (unit,) = units
        return cls(number * _UNITS[unit], unit == "%", digits(number) + unit)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Part:
    """A named part of a policy; two are equal where kind, name and arguments are.

    Its functions never close over a float or an amount: these live in its state. `structure` is
    what they do depend on, so that one compiled program serves every part of the same structure.
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
