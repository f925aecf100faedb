"""What every subcommand is: a dataclass whose fields are its options."""

from __future__ import annotations

import functools
import sys
import typing
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, dataclass_transform

import docstring_parser  # which tyro needs
import tyro

_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "DIR"}
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def command(cls: type[Any]) -> Any:
    """A dataclass whose fields are options: a flag has no opposite, and what has no default that
    says something shows none."""
    made = dataclass(frozen=True, kw_only=True)(cls)
    for name, hint in typing.get_type_hints(made, include_extras=True).items():
        default = made.__dataclass_fields__[name].default
        shown: dict[str, Any] = {"help": _helps(made).get(name)}
        if default is None or default is False or default == ():
            shown["help_behavior_hint"] = ""
        if hint is bool and default is False:
            hint = tyro.conf.FlagCreatePairsOff[bool]
        elif typing.get_origin(hint) is not Annotated:  # else it says how it is shown
            kind, *others = [one for one in typing.get_args(hint) if one is not NoneType] or [hint]
            several = any(typing.get_origin(one) is tuple for one in (hint, *others))
            if kind in _METAVARS:
                shown["metavar"] = f"{_METAVARS[kind]} …" if several else _METAVARS[kind]
            hint = kind | None if default is None else hint
        made.__annotations__[name] = Annotated[hint, tyro.conf.arg(**shown)]
    return made


def _helps(cls: type[Any]) -> dict[str, str]:
    """What is written below the fields of a dataclass, in one line each."""
    found = [_own_helps(one) for one in reversed(cls.__mro__[:-1])]
    return {name: text for one in found for name, text in one.items()}


@functools.cache
def _own_helps(cls: type[Any]) -> dict[str, str]:
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
