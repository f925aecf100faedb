"""Docstrings in which one line describes several names, as in `batch, epochs: …`: for griffe, which
would take the second name for the type of the first. Each name gets a line of its own."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SEVERAL = re.compile(
    r"^(?P<indent> +)(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)+): "
    r"(?P<text>.*(?:\n(?P=indent) +\S.*)*)",
    re.MULTILINE,
)


def _apart(match: re.Match[str]) -> str:
    first, *others = match["names"].split(", ")
    lines = [f"{first}: {match['text']}", *(f"{name}: see `{first}`." for name in others)]
    return "\n".join(match["indent"] + line for line in lines)


class SeveralNames(griffe.Extension):
    """Takes such lines apart before docstrings are parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _SEVERAL.sub(_apart, obj.docstring.value)
