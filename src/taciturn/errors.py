"""The errors of the package, one small tree.

    TaciturnError
    ├── InputError (also ValueError)          a value that cannot be used; says what was seen
    │   └── UnknownName                       a name that nothing answers to; lists the near ones
    ├── DataError                             a data file that is missing or wrong; names it
    ├── MissingExtra (also ImportError)       an optional dependency; says how to install it
    └── RunError                              a run folder or file that cannot be read or written

The command line catches these alone, prints one line and exits with 1.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class TaciturnError(Exception):
    """Base of everything this package raises on purpose."""


class InputError(TaciturnError, ValueError):
    """A value that cannot be used."""


class UnknownName(InputError):
    """A name that nothing answers to."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"Did you mean {_either(near)}?" if near else f"Known: {', '.join(known)}."
        super().__init__(f"There is no {kind} called `{name}`. {hint}")


class DataError(TaciturnError):
    """A data file is missing, cannot be had, or does not hold what it should."""


class MissingExtra(TaciturnError, ImportError):
    """An optional dependency is not installed."""


class RunError(TaciturnError):
    """A run folder or a file in it cannot be read or written."""


def require(module: str, extra: str) -> ModuleType:
    """Imports `module`, or says which extra of the package brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(
            f"`{module}` is not installed. Install it with: pip install 'taciturn[{extra}]'"
        ) from None


def _either(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
