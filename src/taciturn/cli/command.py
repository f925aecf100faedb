"""What every subcommand is: a dataclass whose fields are its options."""

from __future__ import annotations

import functools
import sys
import typing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, dataclass_transform

import docstring_parser  # which tyro needs
import tyro

_SEVERAL: dict[Any, str] = {tuple[str, ...]: "TEXT …", int | tuple[int, ...]: "INT …"}
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def command(cls: type[Any]) -> Any:
    """A dataclass whose fields are options; the text below a field is its help.

    Beyond what tyro does by itself, lines of help are joined, a flag has no opposite, and a default
    of None, false or no values, which says nothing, is not shown.
    """
    made = dataclass(frozen=True, kw_only=True)(cls)
    hints = typing.get_type_hints(made, include_extras=True)
    helps = functools.reduce(dict.__or__, map(_helps, reversed(made.__mro__[:-1])))
    for field in fields(made):
        hint, shown = hints[field.name], dict[str, Any](help=helps[field.name])
        if field.default is None or field.default is False or field.default == ():
            shown["help_behavior_hint"] = ""
        if hint in _SEVERAL:
            shown["metavar"] = _SEVERAL[hint]
        if hint is bool and field.default is False:
            hint = tyro.conf.FlagCreatePairsOff[bool]
        if field.default is None and hint in (int, float):  # until the task fills it in
            hint |= None
        made.__annotations__[field.name] = Annotated[hint, tyro.conf.arg(**shown)]
    return made


@functools.cache
def _helps(cls: type[Any]) -> dict[str, str]:
    parameters = docstring_parser.parse_from_object(cls).params
    return {one.arg_name: " ".join((one.description or "").split()) for one in parameters}


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every subcommand has."""

    debug: bool = False
    """Show the traceback of an error."""

    def go(self) -> None:
        """Does the work."""
        raise NotImplementedError


def tell(line: str) -> None:
    """Says a line to people."""
    sys.stderr.write(f"{line}\n")
