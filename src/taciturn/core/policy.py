"""Policies: rule + stand-in + codec, in Python and as text.

As text, a part is `name[:value][,key=value…]` and parts are joined by `+`:

    adaptive,k=0+ou,cap=true        random:0.5+ignore        adaptive+ignore+eden:0.1+down=eden:1

`value` is the part's first argument. Parts may come in any order; a part that is left out takes its
default, `adaptive`, `ou` and `float32`. A codec that begins with `down=` is for the way down, from
the server to the clients; without one, they get the weights as float32.
"""

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from taciturn.checks import choice
from taciturn.core import budget as budgets
from taciturn.core import codecs, rules, standins
from taciturn.core.codecs import Codec
from taciturn.core.parts import Part, digits
from taciturn.core.rules import Rule
from taciturn.core.standins import StandIn
from taciturn.errors import InputError, UnknownName

_FACTORIES: dict[str, tuple[Callable[..., Any], ...]] = {
    "rule": (rules.full, rules.fixed, rules.adaptive, rules.random, rules.optimal, budgets.budget),
    "stand-in": (standins.ou, standins.zero, standins.ignore, standins.last, standins.own),
    "codec": (codecs.float32, codecs.float16, codecs.bfloat16, codecs.quantize, codecs.eden,
              codecs.top_k, codecs.sparse_ternary, codecs.peaks),
}  # fmt: skip
_KINDS = {kind: {make.__name__: make for make in some} for kind, some in _FACTORIES.items()}
RULES, STAND_INS, CODECS = _KINDS.values()
_TYPES: dict[str, type[Part]] = {"rule": Rule, "stand-in": StandIn, "codec": Codec}
_DOWN = "down"  # `down=` begins the codec for the way down
_ALONE = ("amount", "length")  # first arguments that are written as values, as required ones are
OWN: set[str] = set()  # names that `register` gave


@dataclass(frozen=True)
class Policy:
    """Who speaks, what takes the place of silence, and how updates are written.

    Where no stand-in or codec is given, these are `ou` and `float32`; for a rule that gives each
    client a number of bytes, `ignore` and `peaks`.

    Attributes:
      rule, stand_in, codec: these three.
      down: the codec of what the server sends, in its form of least error; with float32 clients get
        the server's weights as they are (`taciturn.core.downlink`).
    """

    rule: Rule = field(default_factory=rules.adaptive)
    stand_in: StandIn = None  # type: ignore[assignment]
    codec: Codec = None  # type: ignore[assignment]
    down: Codec = field(default_factory=codecs.float32)

    def __post_init__(self) -> None:
        if isinstance(self.rule, Rule):
            stand_in, codec = self._usual()
            object.__setattr__(self, "stand_in", self.stand_in or stand_in)
            object.__setattr__(self, "codec", self.codec or codec)
        for name, kind in (("rule", Rule), ("stand_in", StandIn), ("codec", Codec), (_DOWN, Codec)):
            if not isinstance(value := getattr(self, name), kind):
                raise InputError(f"A policy's `{name}` must be a {kind.__name__}, got {value!r}.")
        if self.rule.nbytes is not None and self.codec.lengths is None:
            raise InputError(
                f"`{self.rule.name}` and `{self.codec.name}` do not go together: a rule that gives "
                "each client a number of bytes needs a codec of any length, such as `peaks`."
            )
        if self.codec.feedback and self.codec.name == "eden":
            raise InputError(
                "`feedback` of `eden` is for the way down alone, as in "
                f"`{_DOWN}={spell(self.codec, without='feedback')}`."
            )
        object.__setattr__(self, "down", least_error(self.down))

    def _usual(self) -> tuple[StandIn, Codec]:
        if self.rule.nbytes is not None:
            return standins.ignore(), codecs.peaks()
        return standins.ou(), codecs.float32()

    def loses(self, size: int) -> bool:
        """Whether the server may decode something else than what a client encoded."""
        return self.rule.nbytes is not None or self.codec.error(size) > 0

    @property
    def has_public(self) -> bool:
        """Whether clients train from a public model, which messages in the codec `down` move."""
        return self.down != codecs.float32()

    @property
    def structure(self) -> tuple[Any, ...]:
        """What a compiled program depends on: all but the numbers, which live in the state."""
        return tuple(p.structure for p in (self.rule, self.stand_in, self.codec, self.down))

    def __str__(self) -> str:
        parts, (stand_in, codec) = [spell(self.rule)], self._usual()
        named = self.rule.name != "full" and self.rule.nbytes is None
        if named or self.stand_in != stand_in:
            parts.append(spell(self.stand_in))
        if self.codec != codec:
            parts.append(spell(self.codec))
        if self.has_public:
            parts.append(f"{_DOWN}={spell(self.down, without='feedback')}")
        return "+".join(parts)


def budget(amount: str | None = None, per: str = "round") -> Policy:
    """The policy that keeps to so many bytes, the one to begin with (`taciturn.core.budget`).

    Args:
      amount: bytes, as in 200kB, or a share of what everyone would upload in float32, as in 1%. By
        default 4 kB for each client that is asked, and 40 kB a round where fewer than ten are.
      per: what it is for: a round, a client that is asked, or the whole run.
    """
    return Policy(budgets.budget(amount, per))


def least_error(codec: Codec) -> Codec:
    """A codec for the way down in the form that leaves out as little as it can."""
    factory = CODECS.get(codec.name)
    if factory is not None and "feedback" in inspect.signature(factory).parameters:
        codec = factory(**dict(codec.params) | {"feedback": True})
    error = codec.error(1 << 20)  # of a large model
    if codec.unbiased and error:
        raise InputError(
            "`down` needs a codec of least error, such as `sparse_ternary:0.05` or `eden:1`; "
            f"`{codec.name}` is unbiased."
        )
    if not error < 1:  # what is left out would grow from round to round
        raise InputError(
            f"`down` needs a codec whose `error` is below 1, got `{spell(codec)}` with {error:g}."
        )
    return codec


def parse(text: str) -> Policy:
    """The policy that `text` describes; `str` of it gives the text back, shortest form."""
    if not isinstance(text, str):
        raise InputError(f"A policy as text must be a string, got {text!r}.")
    found: dict[str, Any] = {}
    kinds = {name: kind for kind, names in _KINDS.items() for name in names}
    for piece in text.split("+"):
        head, equals, rest = piece.partition("=")
        if equals and head.strip() == _DOWN:
            what, kind, piece = _DOWN, "codec", rest
        else:
            name = piece.partition(",")[0].partition(":")[0].strip()
            if name not in kinds:
                raise UnknownName("rule, stand-in or codec", name, kinds)
            what = kind = kinds[name]
        if what in found:
            what = "codec for the way down" if what == _DOWN else what
            raise InputError(f"A policy has one {what}, got two in `{text}`.")
        found[what] = parse_part(kind, piece)
    return Policy(**{what.replace("-", "_"): part for what, part in found.items()})


def register(kind: str, factory: Callable[..., Part]) -> None:
    """Gives a part of your own a name in texts, that of the function that makes it.

        taciturn.register("rule", loudest)      # then "loudest:0.5+ignore" is a policy

    Args:
      kind: `rule`, `stand-in` or `codec`.
      factory: makes the part. Its name is the part's name, its arguments are the part's `params`.
        Registered again, as in a cell of a notebook, the new one takes the place of the old one.
    """
    choice("kind", kind, tuple(_KINDS))
    name = getattr(factory, "__name__", None)
    if not callable(factory) or not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"`factory` must be a function with a name, got {factory!r}.")
    for names in _KINDS.values():
        if name in names and name not in OWN:
            raise InputError(f"`{name}` is a part of the package: choose another name.")
        names.pop(name, None)
    _KINDS[kind][name] = factory
    OWN.add(name)


def import_files(paths: Iterable[Path]) -> None:
    """Runs Python files that register parts."""
    seen: set[str] = set()
    for path in paths:
        name = f"imported {path.stem}"  # no module has a name with a space
        if path.suffix != ".py" or not path.is_file():
            raise InputError(f"`--import` takes Python files, {path} is none.")
        if name in seen:
            raise InputError(f"`--import` got two files called {path.name}.")
        seen.add(name)
        module = sys.modules[name] = ModuleType(name)
        try:
            exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
        except Exception as error:  # whatever somebody's own code raises
            first = str(error).partition("\n")[0]
            raise InputError(f"{path} fails: {type(error).__name__}: {first}") from error


def parse_part(kind: str, text: str) -> Any:
    """The rule, stand-in or codec that `text` describes."""
    head, *pairs = text.strip().split(",")
    name, colon, value = (piece.strip() for piece in head.partition(":"))
    factories = _KINDS[kind]
    if name not in factories:
        raise UnknownName(kind, name, factories)
    parameters = inspect.signature(factories[name]).parameters
    if (colon or pairs) and not parameters:
        raise InputError(f"`{name}` takes no arguments, got `{text}`.")
    arguments = {next(iter(parameters)): _value(value)} if colon else {}
    for pair in pairs:
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals:
            raise InputError(f"Arguments are written key=value, got `{pair}` in `{text}`.")
        if key not in parameters:
            raise UnknownName(f"argument of `{name}`", key, parameters)
        if key in arguments:
            raise InputError(f"`{key}` is given twice in `{text}`.")
        arguments[key] = _value(value)
    for needed, parameter in parameters.items():
        if parameter.default is parameter.empty and needed not in arguments:
            like = 1 if needed == "bits" else 0.5
            raise InputError(f"`{name}` needs `{needed}`, as in `{name}:{like}`.")
    part = factories[name](**arguments)
    if not isinstance(part, _TYPES[kind]) or part.name != name:
        raise InputError(f"`{name}` must make a {kind} of that name, got {part!r}.")
    return part


def spell(part: Part, without: str | None = None) -> str:
    """The shortest text that `parse_part` reads back as `part`; `without` one of its arguments."""
    text, factory = part.name, (RULES | STAND_INS | CODECS).get(part.name)
    if factory is None:  # somebody's own: nothing reads it back, but people do
        return ",".join([text, *(f"{key}={_text(value)}" for key, value in part.params)])
    for i, (key, parameter) in enumerate(inspect.signature(factory).parameters.items()):
        value = dict(part.params).get(key, parameter.default)  # one's own may not keep them
        usual = parameter.default
        if key != without and value is not parameter.empty and _text(value) != _text(usual):
            alone = i == 0 and (usual is parameter.empty or key in _ALONE)
            text += f":{_text(value)}" if alone else f",{key}={_text(value)}"
    return text


def _value(text: str) -> Any:
    """A number, true or false, or the word itself: the factory judges whether it fits."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return digits(value) if isinstance(value, float) else str(value)
