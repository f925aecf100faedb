"""What every subcommand is: a dataclass whose fields are its options."""

from __future__ import annotations

import sys
import typing
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, dataclass_transform

import tyro

_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "DIR"}
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def command(cls: type[Any]) -> Any:
    """A dataclass whose fields are options: None is no default to show, a flag has no opposite."""
    made = dataclass(frozen=True, kw_only=True)(cls)
    for name, hint in typing.get_type_hints(made, include_extras=True).items():
        default = made.__dataclass_fields__[name].default
        kind, *others = [kind for kind in typing.get_args(hint) if kind is not NoneType] or [hint]
        if hint is bool and default is False:
            hint = tyro.conf.FlagCreatePairsOff[bool]
        elif default is None and kind in _METAVARS:
            shown = tyro.conf.arg(metavar=_METAVARS[kind], help_behavior_hint="")
            hint = Annotated[kind | None, shown]
        elif others and typing.get_origin(others[0]) is tuple:
            hint = Annotated[hint, tyro.conf.arg(metavar=f"{_METAVARS[kind]} …")]
        made.__annotations__[name] = hint
    return made


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
