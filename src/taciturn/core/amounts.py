"""Amounts of upload as people write them: `1%` of what float32 takes, `200kB`, `2GB`."""

from __future__ import annotations

import math
import re
from typing import Any

from taciturn.errors import InputError

_UNITS = {"%": 0.01, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
          "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}  # fmt: skip


def digits(number: float) -> str:
    """A short text that reads back as this number, without the + at which policies are cut."""
    text = repr(float(number)).removesuffix(".0")
    return f"{number:.0f}" if "e+" in text else text


class Amount(float):
    """A share of the float32 upload, or bytes. It is a number, so that it sets no program apart."""

    text: str
    is_share: bool

    def __new__(cls, text: Any) -> Amount:
        found = re.fullmatch(r"\s*([0-9.]+(?:e-?[0-9]+)?)\s*(%|[kKMGT]?i?B)\s*", str(text), re.I)
        names = {name.lower(): name for name in _UNITS}
        unit = names.get(found[2].lower()) if found else None
        try:
            number = float(found[1]) if found and unit else math.nan
        except ValueError:
            number = math.nan
        if unit is None or not 0 < number < math.inf:
            raise InputError(
                f"An amount must be above 0 and have a unit, as in 1%, 200kB or 2GB, got {text!r}."
            )
        amount = super().__new__(cls, number * _UNITS[unit])
        amount.text, amount.is_share = digits(number) + unit, unit == "%"
        return amount

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        same_kind = isinstance(other, Amount) and other.is_share == self.is_share
        return same_kind and float(self) == float(other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((float(self), self.is_share))

    def __reduce__(self) -> Any:
        return Amount, (self.text,)
