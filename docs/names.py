"""Docstrings in which one line describes several names, as in `batch, epochs: …`: for griffe, which
would take the second name for the type of the first."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SEVERAL = re.compile(r"^(\s+)(\*{0,2}\w+(?:, \*{0,2}\w+)+)(?=: )", re.MULTILINE)


class SeveralNames(griffe.Extension):
    """Puts spaces that do not separate between names."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = _SEVERAL.sub(lambda m: m[0].replace(", ", ",\u00a0"), text)
