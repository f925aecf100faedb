"""The settings of a simulation, written once.

The fields of `Settings` are the arguments of `simulate` and `compare` and the options of
`taciturn run`; those marked `_static` are what a compiled program depends on. With what is learned
and the policies they are a `Plan`, which is what `config.toml` holds. Nothing here needs JAX, so
that the command line can be read without it.
"""

import contextlib
import itertools
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from taciturn.errors import InputError, RunError, UnknownName

if TYPE_CHECKING:
    Optimizer: TypeAlias = Any  # a name, or an Optax transformation
else:
    Optimizer = str  # all that the command line can say

UNSET: Any = None  # until `taciturn.sim.defaults` fills it in
_MAYBE_0 = ("dropout", "stragglers", "prox")


def _static(default: Any) -> Any:
    """A field that sets a shape, or otherwise makes another program."""
    return field(default=default, metadata={"static": True})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a simulation runs. What is left out has a default, of the task in part."""

    rounds: int = 100
    """How many rounds."""
    cohort: int = _static(10)
    """How many clients are asked in a round."""
    choice: int | None = _static(None)
    """Power of choice: so many clients are asked for their loss first, and the cohort is those with
    the largest (default: nobody is, and cohorts are drawn)."""
    dropout: float = 0.0
    """How likely a client that is asked never answers: its device is gone, nobody hears of it."""
    stragglers: float = 0.0
    """How likely a client is too slow: when time is up it has done only a part of its local steps,
    drawn evenly, and answers with what it has."""
    epochs: int = _static(UNSET)
    """Passes over a client's data in a round (default: the task's)."""
    batch: int = _static(UNSET)
    """Examples in a local batch (default: the task's)."""
    lr: float = UNSET
    """The clients' learning rate (default: the task's)."""
    clip: float = UNSET
    """Largest norm of a batch's gradient; `inf` for no clipping (default: the task's)."""
    client_optimizer: Optimizer = _static("sgd")
    """What clients train with: sgd, momentum, adam or yogi; in Python also an Optax transformation
    with its own rate."""
    prox: float = 0.0
    """FedProx: how strongly a client's weights are pulled back to those it was sent, μ."""
    lr_decay: float = 1.0
    """What the clients' learning rate is multiplied by after every round."""
    lr_schedule: str = _static("constant")
    """How the clients' learning rate goes over the rounds: constant, cosine (down to 0 after the
    last one) or step (a tenth after half of them, a hundredth after three quarters)."""
    server_optimizer: Optimizer = _static("sgd")
    """What the server does with the mean update, of the same choice; sgd at 1 is averaging."""
    server_lr: float = UNSET
    """The server's learning rate (default: 1)."""
    kept_messages: int | None = None
    """With a codec for the way down, how many messages the server keeps for clients that were away:
    one that missed more gets the whole model (default: as many as are shorter than that)."""
    seeds: int | tuple[int, ...] = 1
    """One number: so many runs, with seeds from 0. Several: these seeds."""
    seed: int | None = None
    """One run with this seed, instead of `seeds`."""
    evaluate_every: int = UNSET
    """Rounds between tests (default: twenty tests in a run). The last round is always tested."""
    precision: str = _static("float32")
    """Of matrix products: float32, tf32 or bfloat16. On EMNIST and Shakespeare all reach the same
    accuracy (docs/performance.md); on a GPU bfloat16 is the fastest. Weights are always float32."""
    devices: int | None = _static(None)
    """How many devices to use: GPUs, or cores of a CPU (default: all)."""
    lanes: int | None = _static(None)
    """How many clients train at the same time on a device (default: chosen by itself)."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """One per run."""
        if self.seed is not None:
            return (self.seed,)
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds)

    @property
    def form(self) -> "Settings":
        """What a compiled program depends on: the static fields, the number of seeds, and which of
        the numbers that may be 0 are not, as 1."""
        static = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata.get("static")}
        static |= {name: float(getattr(self, name) != 0) for name in _MAYBE_0}
        return Settings(seeds=len(self.all_seeds), **static)

    def evaluates(self, round: int) -> bool:
        """Whether the model is tested after this round (counted from 0)."""
        return (round + 1) % self.evaluate_every == 0 or round + 1 == self.rounds


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What is learned, and from which data."""

    task: str = "glyphs"
    """What to learn: glyphs, emnist, shakespeare, fashion, … (see `taciturn list`)."""
    data: Path | None = None
    """Where the data lie (default: TACITURN_DATA, the cache, or a download)."""
    split: str | None = None
    """How `fashion` and `idx` are split over clients: iid or dirichlet (default: iid)."""
    alpha: float | None = None
    """Of the Dirichlet split; small means that clients have few labels (default: 0.3)."""
    client: str | None = None
    """The column of a `table` that says whose a row is."""
    label: str | None = None
    """The column of a `table` that is to be learned."""
    leave_out: tuple[str, ...] = ()
    """Columns of a `table` not to learn from."""
    standardise: bool = True
    """Whether the numbers of a `table` are brought to mean 0 and deviation 1."""
    option: tuple[str, ...] = ()
    """Other options of the task: `--option clients=50 hidden=64`."""
    hold_out: str | None = None
    """Which tenth of every client is tested on, where data come without a test set: random (by
    label) or last, where rows are in the order of time (default: random)."""
    imports: tuple[Path, ...] = ()
    """Python files that register parts of your own."""

    @property
    def task_options(self) -> dict[str, Any]:
        """What the task's function is given; what is None is left out there."""
        given: dict[str, Any] = {
            "data": self.data, "split": self.split, "alpha": self.alpha, "hold_out": self.hold_out,
            "client": self.client, "label": self.label, "leave_out": self.leave_out or None,
            "standardise": None if self.standardise else False,
        }  # fmt: skip
        for pair in self.option:
            key, equals, value = pair.partition("=")
            if not equals or given.get(key) is not None:
                raise InputError(f"`--option` is KEY=VALUE, each once, got `{pair}`.")
            given[key] = _value_of(value)
        return given


@dataclass(frozen=True, kw_only=True)
class Plan(TaskOptions, Settings):
    """All that decides what comes out of a run: written down, it runs the same again."""

    arms: str | None = None
    """Policies to run side by side, such as "full; budget; adaptive+ignore+eden:0.1"."""
    plain: bool = False
    """Run the plain loop that reads like the paper, slowly, instead of the engine."""
    noise_floor: bool = False
    """Measure how far accuracies move by rounding alone: run everything once more, with the
    learning rate changed in its last bit."""


def _value_of(text: str) -> Any:
    """A number, true or false, or the word itself."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


_KINDS = {
    name: [kind for kind in typing.get_args(hint) if kind is not type(None)] or [hint]
    for name, hint in typing.get_type_hints(Plan).items()
}
# In which a list is no sweep.
TOGETHER = ("seeds", "seed", "arms", "plain", "noise_floor", "leave_out", "option", "imports")


def read_values(found: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Plan` from a file or from text: each of its type, or a list where several are
    to be run."""
    values: dict[str, Any] = {}
    for name, value in found.items():
        if name not in _KINDS:
            raise UnknownName("setting", name, _KINDS)
        swept = isinstance(value, list) and name not in TOGETHER
        if swept and not value:
            raise InputError(f"`{name}` has no value.")
        values[name] = [_typed(name, one) for one in value] if swept else _typed(name, value)
    return values


def read_config(path: Path) -> dict[str, Any]:
    """The fields of a `Plan` that a TOML file has; a list is a sweep, imports lie beside it."""
    try:
        values = read_values(tomllib.loads(path.read_text("utf-8")))
        if "imports" in values:
            values["imports"] = tuple(path.parent / one for one in values["imports"])
        return values
    except (OSError, ValueError) as error:  # InputError is a ValueError
        raise RunError(f"{path} cannot be used: {error}") from None


def _typed(name: str, value: Any) -> Any:
    kind, *others = _KINDS[name]
    if isinstance(value, list) and others:
        return tuple(_typed(name, item) for item in value)
    if kind is bool and isinstance(value, bool):
        return value
    if kind in (str, Path) and isinstance(value, str):
        return kind(value)
    if kind in (int, float) and isinstance(value, str | int | float) and type(value) is not bool:
        with contextlib.suppress(ValueError, OverflowError):  # words, and `inf` as a whole number
            number = kind(value)
            if isinstance(value, str) or number == value:
                return number
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    raise InputError(f"`{name}` must be {words.get(kind, 'text')}, got {value!r}.")


def points(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every combination of what is swept over, by a name such as `lr=0.1,batch=20`."""
    swept = {name: value for name, value in values.items() if isinstance(value, list)}
    found = {}
    for chosen in itertools.product(*swept.values()):
        point = dict(zip(swept, chosen, strict=True))
        label = ",".join(f"{name}={str(item).replace('/', '_')}" for name, item in point.items())
        found[label] = {**values, **point}
    return found
