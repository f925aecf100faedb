"""The errors of the package, one small tree.

    TaciturnError
    ├── InputError (also ValueError)          a value that cannot be used; says what was seen
    │   └── UnknownName                       a name that nothing answers to; lists the near ones
    ├── DataError                             a data file that is missing or wrong; names it
    ├── MissingExtra (also ImportError)       an optional dependency; says how to install it
    ├── RunError                              a run folder or file that cannot be read
    │   └── WriteError                        one that cannot be written: the disk is full
    └── Stopped                               a run that was asked to stop, and is saved

The command line catches these alone, prints one line and exits with 1.
"""

import difflib
import importlib
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any


class TaciturnError(Exception):
    """Base of everything this package raises on purpose."""


class InputError(TaciturnError, ValueError):
    """A value that cannot be used."""


class UnknownName(InputError):
    """A name that nothing answers to."""

    def __init__(self, kind: str, name: Any, known: Iterable[str]) -> None:
        known, name = sorted(known), str(name)
        name = name if len(name) <= 60 else f"{name[:60]}…"
        near = " or ".join(f"`{one}`" for one in difflib.get_close_matches(name, known, 3, 0.5))
        hint = f"Did you mean {near}?" if near else f"Known: {', '.join(known)}."
        super().__init__(f"There is no {kind} called `{name}`. {hint}")


class DataError(TaciturnError):
    """A data file is missing, cannot be had, or does not hold what it should."""


class MissingExtra(TaciturnError, ImportError):
    """An optional dependency is not installed."""


class RunError(TaciturnError):
    """A run folder or a file in it cannot be used."""


class WriteError(RunError):
    """A file of a run cannot be written: the disk is full, or not ours to write on."""


class Stopped(TaciturnError):
    """A run that was asked to stop, by the signal of this number, and is saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


def require(module: str, extra: str, least: str = "0") -> ModuleType:
    """The module, or an error that says which extra of the package brings it; also where its
    version is below `least`."""
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(
            f"`{module}` is not installed. `taciturn[{extra}]` needs it. {install(extra)}"
        ) from None
    if least != "0":
        from importlib.metadata import version  # slow to import, and hardly ever needed

        here = version(module)
        if [int(x) for x in here.split(".")[:2]] < [int(x) for x in least.split(".")]:
            raise MissingExtra(
                f"`taciturn.{extra}` needs {module} {least} or later, this is {here}. "
                + install(extra)
            )
    return found


def install(extra: str) -> str:
    """How to install what an extra of the package needs.

    It names the requirements and not the package, which is in no index: whoever takes its name
    there could answer for it.
    """
    needed = _requirements(extra)
    if not needed:  # run from a source tree
        return f'In a clone of taciturn, install it with: pip install ".[{extra}]"'
    return "Install it with: pip install " + " ".join(f'"{one}"' for one in needed)


def _requirements(extra: str) -> list[str]:
    """The requirements of an extra and of the extras that it includes, each once."""
    from importlib import metadata  # slow to import, and hardly ever needed

    try:
        known = metadata.requires("taciturn") or []
    except metadata.PackageNotFoundError:
        return []
    found: list[str] = []
    for requirement, _, marker in (line.partition(";") for line in known):
        if re.search(rf"""extra *== *['"]{extra}['"]""", marker):
            included = re.fullmatch(r"taciturn *\[(.+)\]", requirement.strip())
            names = included[1].split(",") if included else []
            found += [one for name in names for one in _requirements(name.strip())]
            found += [] if included else [requirement.strip()]
    return list(dict.fromkeys(found))
