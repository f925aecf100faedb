"""What every subcommand is: a dataclass whose fields are its options."""

import dataclasses
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import docstring_parser  # which tyro needs
import tyro
from tyro import constructors

_SEVERAL: dict[Any, str] = {tuple[str, ...]: "TEXT …", int | tuple[int, ...]: "INT …",
                            tuple[Path, ...]: "FILE …"}  # fmt: skip
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every subcommand has."""

    rare: ClassVar[frozenset[str]] = frozenset()  # options that `--help-all` alone shows

    debug: bool = False
    """Show the traceback of an error."""

    def go(self) -> None:
        """Does the work."""
        raise NotImplementedError


def options_of(
    info: constructors.StructTypeInfo, brief: bool
) -> constructors.StructConstructorSpec | None:
    """The fields of a command as `tyro.cli` makes options of them; `brief` leaves out rare ones.

    The text below a field is its help, in one line. A flag has no opposite, and a default of None,
    false or no values, which says nothing, is not shown.
    """
    cls = info.type
    if not (isinstance(cls, type) and issubclass(cls, Command)):
        return None
    hints = typing.get_type_hints(cls, include_extras=True)
    helps = {
        param.arg_name: " ".join((param.description or "").split())
        for base in reversed(cls.__mro__[:-1])
        for param in docstring_parser.parse_from_object(base).params
    }
    found = []
    for field in dataclasses.fields(cls):
        if brief and field.name in cls.rare:
            continue
        default = tyro.MISSING if field.default is dataclasses.MISSING else field.default
        hint = hints[field.name]
        shown: dict[str, Any] = {"metavar": _SEVERAL.get(hint)}
        if default is None or default is False or default == ():
            shown["help_behavior_hint"] = ""
        if field.name == "imports":  # `import` is no name of a field
            shown["name"] = "import"
        if hint is bool and default is False:
            hint = tyro.conf.FlagCreatePairsOff[bool]
        if default is None and hint in (int, float):  # until the task fills it in
            hint |= None
        made: Any = Annotated[hint, tyro.conf.arg(**shown)]
        found.append(constructors.StructFieldSpec(field.name, made, default, helps[field.name]))
    return constructors.StructConstructorSpec(cls, tuple(found))
