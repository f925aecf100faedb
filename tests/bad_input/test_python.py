"""Bad input in Python: an error of the package that names the argument, before anything trains.

A case is a call and a piece of what it must say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from accepting import refused

import taciturn
from taciturn import Generated, Policy, Stored, Task, compare, parse, simulate
from taciturn.core.rules import Rule
from taciturn.errors import InputError, TaciturnError
from taciturn.tasks import load

X = np.zeros((6, 2), np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])
LOSS, METRICS = taciturn.classification(lambda params, x, key: x @ params)


def task(**changes: Any) -> Task:
    """A good one, but for the changes."""
    good = {
        "name": "mine", "clients": Stored.of({"x": X, "y": Y}, [2, 4]), "loss": LOSS,
        "init": lambda key: jnp.zeros((2, 3)), "metrics": METRICS,
    }  # fmt: skip
    return Task(**good | changes)


def stored(x: Any = X, y: Any = Y) -> Stored:
    return Stored.of({"x": x, "y": y}, [2, 4])


def run(what: Any = None, policy: Any = "full", **settings: Any) -> Any:
    given = {"rounds": 1, "cohort": 1} | settings
    return simulate(task() if what is None else what, policy, **given)


SETTINGS: dict[str, list[Any]] = {  # none of these is a value of the setting
    "rounds": [0, -1, 1.5, "3", None, True, np.nan, [1], 10**12, np.int64(0), 2**70],
    "cohort": [0, -1, 1.5, "3", None, True, 3, np.float32(1), 10**12],
    "choice": [0, -1, 1.5, "3", True, 3, 10**12],
    "epochs": [0, -1, 0.5, "1", True, 10**9, [1]],
    "batch": [0, -1, 0.5, "1", True, 10**9, np.array([1, 2])],
    "lr": [-1, np.nan, np.inf, "fast", True, [1.0], 1j, 10**400],
    "clip": [0, -1, np.nan, "no", True, []],
    "dropout": [-0.1, 1, 2, np.nan, "x", None, True],
    "stragglers": [-0.1, 1.1, np.nan, "x", None, True],
    "prox": [-1, np.nan, np.inf, "x", None, True],
    "lr_decay": [0, -1, 1.1, np.nan, "x", None, True],
    "lr_schedule": ["linear", "", None, 1, ["cosine"]],
    "server_lr": [-1, np.nan, np.inf, "fast", True],
    "seeds": [0, -1, 1.5, "3", None, (), (1, 1), (-1,), (2**32,), (0.5,), 10**12, True, {"a": 1}],
    "seed": [-1, 1.5, "3", 2**32, True, [1]],
    "evaluate_every": [0, -1, 1.5, "1", True],
    "precision": ["half", 32, b"float32", ["float32"]],
    "devices": [0, -1, 1.5, "1", 1000, True],
    "lanes": [0, -1, 1.5, "1", True, 10**9],
    "client_optimizer": ["adm", 5, True, optax.sgd, []],
    "server_optimizer": ["adm", 5, {}],
}
OF_SETTINGS = [
    (f"{name}={value!r:.30}", lambda name=name, value=value: run(**{name: value}), name)
    for name, values in SETTINGS.items()
    for value in values
]
NAMED = {"client_optimizer": "optimizer", "server_optimizer": "optimizer"}  # what errors call them

FACTORIES: list[tuple[Callable[..., Any], list[Any], str]] = [
    (taciturn.fixed, [-1, np.nan, "x", None, True, [1], 1j], "threshold"),
    (lambda k: taciturn.adaptive(k=k), [np.nan, np.inf, "x", None, True, []], "k"),
    (lambda w: taciturn.adaptive(weighted=w), [1, 0, None, "true", 1.0], "weighted"),
    (taciturn.random, [-0.1, 1.1, np.nan, "x", None, True, [0.5]], "probability"),
    (taciturn.ou, ["best", None, 1, ["paper"]], "mode"),
    (lambda cap: taciturn.ou(cap=cap), [1, None, "true"], "cap"),
    (taciturn.quantize, [0, 9, 1.5, "x", None, np.nan, True, [2]], "bits"),
    (taciturn.eden, [0, -1, 9, "x", None, np.nan, True], "bits"),
    (taciturn.top_k, [0, -1, 2, "x", None, np.nan, True], "share"),
    (taciturn.peaks, [0, -1, 40, np.nan, np.inf, True, "31B"], "`length` must be"),
    (taciturn.peaks, ["x", "0%", "-1kB", "", None, [1], b"4kB", 1j], "amount must be above 0"),
    (taciturn.budget, [0, -1, 4, "x", "0%", "4", np.nan, True, [1]], "amount must be above 0"),
    (lambda per: taciturn.budget("4kB", per), ["week", None, 1, ["run"]], "`per` must be"),
    (taciturn.sparse_ternary, [0, -1, 2, "x", None, np.nan, True], "share"),
]
OF_FACTORIES = [
    (f"{name} {value!r}", lambda make=make, value=value: make(value), name)
    for make, values, name in FACTORIES
    for value in values
]

OTHERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: run(policy=None), "`policy` must be a policy or its text, got None"),
    (lambda: run(policy=5), "`policy` must be a policy"),
    (lambda: run(policy=taciturn.adaptive()), "`Policy(rule)`"),
    (lambda: run(policy=taciturn.ou()), "`policy` must be a policy"),
    (lambda: run(policy=["full"]), "`policy` must be a policy"),
    (lambda: run(policy=b"full"), "`policy` must be a policy"),
    (lambda: run(policy=Policy), "`policy` must be a policy"),
    (lambda: run(policy="fulll"), "`fulll`"),
    (lambda: compare(task(), ["full"]), "`arms` must be a dict"),
    (lambda: compare(task(), "full"), "`arms` must be a dict"),
    (lambda: compare(task(), None), "`arms` must be a dict"),
    (lambda: compare(task(), {}), "`arms` is empty"),
    (lambda: compare(task(), {"a": None}), "`arms['a']` must be a policy"),
    (lambda: compare(task(), {"a": taciturn.full()}), "`arms['a']` must be a policy"),
    (lambda: compare(task(), {1: 2}), "`arms[1]` must be a policy"),
    (lambda: compare(None, {"a": "full"}), "A task is a `taciturn.Task` or the name of one"),
    (lambda: compare(5, {"a": "full"}), "A task is"),
    (lambda: compare(Task, {"a": "full"}), "A task is"),
    (lambda: compare("synthetc", {"a": "full"}), "task called `synthetc`"),
    (lambda: compare("", {"a": "full"}), "task called ``"),
    (lambda: run(progress=5), "`progress` must be a function"),
    (lambda: run(plain=1), "`plain` must be true or false"),
    (lambda: run(plain="no"), "`plain` must be true or false"),
    (lambda: run(plain=True, lanes=1), "`lanes` is the engine's"),
    (lambda: run(round=3), "setting called `round`. Did you mean `rounds`"),
    (lambda: run(learning_rate=1), "setting called `learning_rate`"),
    (lambda: run(seed=1, seeds=2), "`seed` is one run"),
    (lambda: run(client_optimizer=optax.sgd(0.1), lr=0.1), "leave out `lr`"),
    (lambda: run(server_optimizer=optax.sgd(0.1), server_lr=0.1), "leave out `server_lr`"),
    (lambda: Policy("adaptive"), "Rule cannot be 'adaptive'"),
    (lambda: Policy(taciturn.ou()), "Rule cannot be"),
    (lambda: Policy(stand_in=taciturn.full()), "StandIn cannot be"),
    (lambda: Policy(codec="eden"), "Codec cannot be 'eden'"),
    (lambda: Policy(taciturn.budget()), "Rule cannot be"),
    (lambda: Policy(parse("budget").rule, codec=taciturn.eden(1)), "do not go together"),
    (lambda: parse(None), "must be a string, got None"),
    (lambda: parse(5), "must be a string, got 5"),
    (lambda: parse(""), "called ``"),
    (lambda: Stored.of({"x": X}, []), "`rows` must be a non-empty list"),
    (lambda: Stored.of({"x": X}, 6), "`rows` must be a non-empty list"),
    (lambda: Stored.of({"x": X}, [3.0, 3.0]), "`rows` must be"),
    (lambda: Stored.of({"x": X}, ["a"]), "`rows` must be"),
    (lambda: Stored.of({"x": X}, [[6]]), "`rows` must be"),
    (lambda: Stored.of({"x": X}, [6, 0]), "Every client needs a row"),
    (lambda: Stored.of({"x": X}, [7, -1]), "Every client needs a row"),
    (lambda: Stored.of({"x": X}, [5]), "rows add up to 5, the arrays have [6]"),
    (lambda: Stored.of({"x": X, "y": Y[:5]}, [6]), "the arrays have [5, 6]"),
    (lambda: Stored.of({}, [6]), "the arrays have []"),
    (lambda: Stored.of({"x": np.float32(1)}, [6]), "`arrays`"),
    (lambda: Stored.of({"x": None}, [6]), "the arrays have []"),
    (lambda: Stored.of({"x": "abcdef"}, [6]), "`arrays`"),
    (lambda: Stored.of({"x": X}, [6], examples=[0]), "`examples` must be above 0"),
    (lambda: Stored.of({"x": X}, [6], examples=[np.nan]), "`examples` must be above 0"),
    (lambda: Stored.of({"x": X}, [6], examples=[1, 2]), "`examples` must be above 0"),
    (lambda: Stored.of({"x": X}, [6], examples="a"), "`examples` must be above 0"),
    (lambda: Stored.of({"x": X}, [6], names=["a", "b"]), "`names` must be one per client"),
    (lambda: run(task(clients=None)), "`clients.population` must be a whole number"),
    (lambda: run(task(clients={"x": X})), "`clients.population`"),
    (lambda: run(task(clients=Generated(0, 1, lambda c, d: 1, lambda c, i, d: {}))),
     "`clients.population` must be at least 1"),
    (lambda: run(task(clients=Generated(1, 0, lambda c, d: 1, lambda c, i, d: {}))),
     "`clients.longest` must be at least 1"),
    (lambda: run(task(clients=Generated(2, 2, lambda c, d: 2, None))), "`clients` of task `mine`"),
    (lambda: run(task(init=None)), "`init` of task `mine` fails"),
    (lambda: run(task(init=lambda: 0)), "`init` of task `mine` fails"),
    (lambda: run(task(init=lambda key: {})), "`loss` of task `mine` fails"),
    (lambda: run(task(init=lambda key: jnp.zeros(3, int))), "`loss` of task `mine` fails"),
    (lambda: run(task(loss=None)), "`loss` of task `mine` fails"),
    (lambda: run(task(loss=lambda *a: jnp.mean(LOSS(*a)))), "not their mean"),
    (lambda: run(task(loss=lambda p, b, key: b["z"])), "`loss` of task `mine` fails: KeyError"),
    (lambda: run(task(metrics=None)), "`metrics` of task `mine` fails"),
    (lambda: run(task(metrics=lambda p, b: {})), "must be a dict with a name for each"),
    (lambda: run(task(metrics=lambda p, b: {"accuracy": 1.0})), "`accuracy`"),
    (lambda: run(task(clients=stored(y=Y + 1))), "labels must be in 0 to 2"),
    (lambda: run(task(clients=stored(y=Y - 1))), "labels must be in 0 to 2"),
    (lambda: run(task(clients=stored(y=Y + 2**40))), "must fit into int32"),
    (lambda: run(task(clients=stored(y=Y + 0.5))), "`loss` of task `mine` fails"),
    (lambda: run(task(clients=stored(x=X + np.nan))), "must be finite"),
    (lambda: run(task(clients=stored(x=X + np.inf))), "must be finite"),
    (lambda: run(task(clients=stored(x=X.astype(str)))), "must be numbers"),
    (lambda: run(task(clients=stored(x=X.astype(object)))), "must be numbers"),
    (lambda: run(task(clients=stored(x=X[:, :1]))), "`loss` of task `mine` fails"),
    (lambda: run(task(test={"x": X, "y": Y[:5]})), "arrays must be of one length"),
    (lambda: run(task(test={"x": X[:0], "y": Y[:0]})), "has no test examples"),
    (lambda: run(task(test={})), "has no arrays of test data"),
    (lambda: run(task(test=[])), "has no arrays of test data"),
    (lambda: run(task(test={"x": X})), "`metrics` of task `mine` fails: KeyError"),
    (lambda: run(task(test={"x": X, "y": Y + 1})), "labels must be in 0 to 2"),
    (lambda: run(task(test="none")), "must be an array"),
    (lambda: run(task(hold_out="first")), "`hold_out` must be random or last"),
    (lambda: run(task(batch=0)), "`batch` must be at least 1"),
    (lambda: run(task(epochs=None)), "`epochs`"),
    (lambda: run(task(lr="fast")), "`lr` must be a number"),
    (lambda: run(task(clip=-1)), "`clip` must be in"),
    (lambda: load(None), "task called `None`"),
    (lambda: load(["npz"]), "task called"),
    (lambda: load("npz", data=5), "`data` must be a path, got 5"),
    (lambda: load("npz", data=b"a.npz"), "`data` must be a path"),
    (lambda: load("npz", data=""), "`data` must be a path"),
    (lambda: load("npz", data="a\0b"), "`data` cannot be"),
    (lambda: load("npz", data="nowhere.npz"), "is not there"),
    (lambda: load("npz", date="x"), "no option `date`"),
    (lambda: load("emnist", data=5), "`data` must be a path"),
    (lambda: load("emnist", data="nowhere"), "`data` must be a folder"),
    (lambda: load("emnist", source="web"), "`source` must be files or huggingface"),
    (lambda: load("shakespeare", limit=0), "`limit` must be at least 1"),
    (lambda: load("shakespeare", weigh="words"), "`weigh` must be tokens or sequences"),
    (lambda: load("idx", data=5), "`data` must be a path"),
    (lambda: load("glyphs", population=0), "`population` must be at least 1"),
    (lambda: load("glyphs", population=2**31), "`population` must be at most"),
    (lambda: load("glyphs", population=1e3), "`population` must be a whole number"),
    (lambda: load("glyphs", seed=-1), "`seed` must be at least 0"),
    (lambda: load("glyphs", seed=2**32), "`seed` must be at most"),
    (lambda: load("synthetic", seed=-1), "`seed` must be at least 0"),
    (lambda: load("synthetic", seed="a"), "`seed` must be a whole number"),
    (lambda: load("synthetic-niid", clients=0), "`clients` must be at least 1"),
    (lambda: load("synthetic-niid", clients=10**9), "`clients` must be at most"),
    (lambda: load("synthetic-niid", hold_out="x"), "`hold_out` must be random or last"),
    (lambda: load("synthetic", hold_out="last"), "`hold_out` cannot be chosen"),
    (lambda: Rule("", init=None, speaks=None), "`name`"),
    (lambda: Rule(5, init=None, speaks=None), "`name`"),
    (lambda: Rule("a+b", init=None, speaks=None), "`name`"),
]  # fmt: skip
CASES = [
    *((label, call, NAMED.get(name, name)) for label, call, name in OF_SETTINGS),
    *OF_FACTORIES,
    *((f"{i}: {needle}", call, needle) for i, (call, needle) in enumerate(OTHERS)),
]


NAMES = [label.partition(" at 0x")[0] for label, *_ in CASES]  # the same in every process


@pytest.mark.parametrize(("call", "needle"), [c[1:] for c in CASES], ids=NAMES)
def test_it_is_an_error_that_names_the_argument(
    call: Callable[[], Any], needle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(monkeypatch), pytest.raises(TaciturnError) as error:
        call()
    assert needle in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize(
    "settings",
    [{"rounds": np.int64(2)}, {"cohort": np.int32(1)}, {"seeds": np.int64(2)}, {"seed": np.int8(3)},
     {"seeds": np.array([1, 5])}, {"lr": np.float32(0.5)}, {"batch": np.uint8(2)}],
)  # fmt: skip
def test_numbers_of_numpy_are_numbers(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go through all checks, and come out as Python's."""
    from taciturn.sim import engine

    seen: list[Any] = []

    def stream(task: Any, arms: Any, filled: Any) -> Any:
        seen.append(filled)
        raise InputError("enough was seen")

    monkeypatch.setattr(engine, "stream", stream)
    with pytest.raises(InputError, match="enough was seen"):
        run(**settings)
    (filled,) = seen
    for name in settings:
        value = getattr(filled, name) if name != "seed" else filled.seeds
        for part in value if isinstance(value, tuple) else (value,):
            assert type(part) in (int, float)
