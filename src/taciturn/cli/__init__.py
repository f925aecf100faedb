"""The command line: each subcommand is a dataclass, and its docstring the help."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Union

import tyro

from taciturn.cli.command import Command, options_of
from taciturn.cli.inspect import Data, List, Report, Runs, Watch
from taciturn.cli.run import Compare, Frontier, Resume, Run, Simulation
from taciturn.errors import InputError

_ABOUT = """Federated learning in which a client speaks only when it has something to say.

`taciturn COMMAND --help` has the options of each, `taciturn --version` the version."""
_COMMANDS: dict[str, Callable[..., Any]] = {
    "run": Run, "compare": Compare, "resume": Resume, "runs": Runs, "report": Report,
    "watch": Watch, "list": List, "data": Data, "frontier": Frontier,
}  # fmt: skip


def read(arguments: list[str] | None = None) -> Command:
    """The command that the command line asks for; wrong options exit with 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    wants_help = bool({"-h", "--help"} & set(arguments))
    arguments = ["--help" if word == "--help-all" else word for word in arguments]
    # The help that lists all commands has the first sentence of each.
    brief = not any(word in _COMMANDS for word in arguments)
    commands: Any = Union[tuple(  # noqa: UP007
        Annotated[Any, tyro.conf.subcommand(name, constructor=made, description=(
            (made.__doc__ or "").split("\n")[0] if brief else None))]
        for name, made in _COMMANDS.items()
    )]  # fmt: skip
    registry = tyro.constructors.ConstructorRegistry()
    registry.struct_rule(partial(options_of, brief=wants_help))
    found: Command = tyro.cli(
        commands,
        args=arguments,
        prog="taciturn",
        description=_ABOUT,
        registry=registry,
        config=(tyro.conf.DisallowNone,),
    )
    if not isinstance(found, Simulation):
        return found
    options = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    for option in options:
        if options.count(option) > 1:  # of several, tyro takes the last
            raise InputError(f"`--{option}` is there {options.count(option)} times: give it once.")
    given = {option.replace("-", "_").removeprefix("no_") for option in options}
    given |= {"imports"} if "import" in given else set()
    return found.with_config(given | ({"task"} if found.task is not None else set()))


def main(arguments: list[str] | None = None) -> None:
    """Reads the command line and does what it says."""
    read(arguments).go()
