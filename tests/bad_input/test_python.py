"""Bad input in Python: an error of the package that names the argument, before anything trains.

A case is a call and a piece of what it must say.
"""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from files import OF_ALL, OF_TASKS

import taciturn
from taciturn import Generated, Policy, Stored, Task, checks, compare, parse, simulate
from taciturn.core import client, server
from taciturn.core.rules import Rule
from taciturn.errors import InputError, TaciturnError
from taciturn.tasks import load

X = np.zeros((6, 2), np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])
LOSS, METRICS = taciturn.classification(lambda params, x, key: x @ params)


def task(**changes):
    """A good one, but for the changes."""
    good = {
        "name": "mine", "clients": Stored.of({"x": X, "y": Y}, [2, 4]), "loss": LOSS,
        "init": lambda key: jnp.zeros((2, 3)), "metrics": METRICS,
    }  # fmt: skip
    return Task(**good | changes)


def stored(x=X, y=Y):
    return Stored.of({"x": x, "y": y}, [2, 4])


def run(what=None, policy="full", **settings):
    given = {"rounds": 1, "cohort": 1} | settings
    return simulate(task() if what is None else what, policy, **given)


def respond(trained, examples=1):
    return client.respond(taciturn.full(), np.ones(2), trained, examples, None, 0.5)


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (lambda v: checks.whole("it", v, 1, 9),
         [0, -1, 10, 2**70, 1.5, "3", None, True, np.nan, [1], np.int64(0), np.array([1, 2])]),
        (lambda v: checks.number("it", v, "(0, 1]"),
         [0, -0.1, 1.1, np.nan, np.inf, "x", None, True, [0.5], 1j, 10**400]),
        (lambda v: checks.flag("it", v), [0, 1, None, "true", 1.0]),
        (lambda v: checks.choice("it", v, ("a", "b")), ["c", "", "A", None, 1, ["a"]]),
        (lambda v: checks.path_of("it", v), [5, b"a", "", "a\0b", "x" * 5000, "caf\udce9", None]),
    ],
    ids=["whole", "number", "flag", "choice", "path_of"],
)  # fmt: skip
def test_a_check_refuses_what_is_wrong(check, wrong):
    for value in wrong:
        with pytest.raises(InputError, match="`it` "):
            check(value)


SETTINGS = {  # just outside, and of another type
    "rounds": [0, 10**12, "3"], "cohort": [0, 3, np.inf], "choice": [0, 3], "epochs": [0, 10**9],
    "batch": [0, 10**9], "lr": [-1, np.nan, np.inf, False, "fast"], "clip": [0],
    "dropout": [-0.1, 1], "stragglers": [-0.1, 1.1], "prox": [-1, np.inf], "lr_decay": [0, 1.1],
    "lr_schedule": ["linear"], "server_lr": [-1], "evaluate_every": [0], "precision": ["half"],
    "kept_messages": [-1], "seed": [-1, 2**32], "devices": [0, 1000], "lanes": [0, 10**9],
    "seeds": [0, "3", (), (False, 1), (1, 1), (-1,), (2**32,), (0.5,), 10**12, {"a": 1}],
    "client_optimizer": ["adm", 5, optax.sgd], "server_optimizer": ["adm"],
}  # fmt: skip
NAMED = {"client_optimizer": "optimizer", "server_optimizer": "optimizer"}  # what errors call them

FACTORIES = [
    (taciturn.fixed, [-1, "x"], "`threshold`"),
    (lambda k: taciturn.adaptive(k=k), [np.inf], "`k`"),
    (lambda w: taciturn.adaptive(weighted=w), [1], "`weighted`"),
    (taciturn.random, [-0.1, 1.1], "`probability`"),
    (taciturn.optimal, [0, 1.1], "`share`"),
    (taciturn.ou, ["best", None], "`mode`"),
    (lambda cap: taciturn.ou(cap=cap), [1], "`cap`"),
    (taciturn.quantize, [0, 9, 1.5], "`bits`"),
    (lambda feedback: taciturn.quantize(2, feedback), [1], "`feedback`"),
    (taciturn.eden, [0, 9], "`bits`"),
    (taciturn.top_k, [0, 2], "`share`"),
    (taciturn.sparse_ternary, [0, 2], "`share`"),
    (taciturn.peaks, [0, 40, np.nan, True, "31B", "x", "0%", None, b"4kB"], ""),
    (taciturn.budget, [0, "4", "-1kB", "0%", np.nan, [1]], ""),
    (lambda per: taciturn.budget("4kB", per), ["week", ["run"]], "`per`"),
]

POLICIES = {  # as text
    "": "``", "adaptve": "`adaptive`", "adaptive+": "``", "Adaptive": "`Adaptive`",
    "adaptive+adaptive": "rule", "ou+zero": "stand-in", "float16+eden:1": "codec",
    "fixed": "`threshold`", "fixed:nan": "`threshold`", "fixed:1,2": "`2`",
    "fixed:1,threshold=2": "`threshold`", "full:1": "`full`", "full,k=1": "`full`",
    "adaptive,q=1": "`q`", "adaptive,weighted=maybe": "`weighted`", "adaptive,at_most=2.5": "2.5",
    "full+eden:1,feedback=true": "`feedback`", "full+peaks:4 parsecs": "parsecs",
    "full+down=edn:1": "`eden`", "full+down=peaks:0.1": "`down`", "full+down=peaks:2": "unbiased",
    "budget,per=run": "`per=run`", "budget:1kB+eden:1": "`eden`",
}  # fmt: skip

OTHERS = [
    (lambda: compare(task(), {"a": None}), "`arms['a']`"),
    (lambda: run(policy=taciturn.adaptive()), "`Policy(rule)`"),
    (lambda: compare(task(), ["full"]), "`arms`"),
    (lambda: compare(task(), {}), "`arms`"),
    (lambda: compare(5, {"a": "full"}), "`taciturn.Task`"),
    (lambda: compare("synthetc", {"a": "full"}), "`synthetc`"),
    (lambda: run(progress=5), "`progress`"),
    (lambda: run(plain=1), "`plain`"),
    (lambda: run(plain=True, lanes=1), "`lanes`"),
    (lambda: run(round=3), "`rounds`"),
    (lambda: run(seed=1, seeds=2), "`seed`"),
    (lambda: run(client_optimizer=optax.sgd(0.1), lr=0.1), "`lr`"),
    (lambda: Policy("adaptive"), "'adaptive'"),
    (lambda: parse(None), "None"),
    (lambda: server.init(parse("full"), [1.0]), "list"),
    (lambda: server.init(parse("full"), X), "(6, 2)"),
    (lambda: server.init(parse("full"), Y), "int64"),
    (lambda: respond(np.ones(3)), "(3,)"),
    (lambda: respond(np.ones(2), 0), "`examples`"),
    (lambda: parse("budget:2GB,per=run").rule.init(100, None), "rounds"),
    (lambda: Stored.of({"x": X}, []), "`rows`"),
    (lambda: Stored.of({"x": X}, ["a"]), "`rows`"),
    (lambda: Stored.of({"x": X}, [[6]]), "`rows`"),
    (lambda: Stored.of({"x": X}, [6, 0]), "row"),
    (lambda: Stored.of({"x": X}, [5]), "[6]"),
    (lambda: Stored.of({}, [6]), "[]"),
    (lambda: Stored.of({"x": np.float32(1)}, [6]), "`arrays`"),
    (lambda: Stored.of({"x": X}, [6], examples=[0]), "`examples`"),
    (lambda: Stored.of({"x": X}, [6], examples=[1, 2]), "`examples`"),
    (lambda: Stored.of({"x": X}, [6], names=["a", "b"]), "`names`"),
    (lambda: run(task(clients=None)), "`clients.population`"),
    (lambda: run(task(clients=Generated(1, 0, lambda c, d: 1, lambda c, i, d: {}))),
     "`clients.longest`"),
    (lambda: run(task(clients=Generated(2, 2, lambda c, d: 2, None))), "`clients`"),
    (lambda: run(task(loss=lambda p, b, key: b["z"])), "KeyError"),
    (lambda: run(task(metrics=lambda p, b: {})), "dict"),
    (lambda: run(task(metrics=lambda p, b: {"accuracy": 1.0})), "`accuracy`"),
    (lambda: run(task(clients=stored(y=Y + 1))), "0 to 2"),
    (lambda: run(task(clients=stored(y=Y + 2**40))), "int32"),
    (lambda: run(task(clients=stored(x=X.astype(str)))), "numbers"),
    (lambda: run(task(test={"x": X, "y": Y[:5]})), "length"),
    (lambda: run(task(test={"x": X[:0], "y": Y[:0]})), "test"),
    (lambda: run(task(test={})), "test"),
    (lambda: run(task(test={"x": X, "y": Y + 1})), "0 to 2"),
    (lambda: run(task(hold_out="first")), "`hold_out`"),
    (lambda: load(["npz"]), "npz"),
    (lambda: load("npz", date="x"), "`date`"),
    (lambda: load("emnist", source="web"), "`source`"),
    (lambda: load("shakespeare", limit=0), "`limit`"),
    (lambda: load("shakespeare", weigh="words"), "`weigh`"),
    (lambda: load("glyphs", population=2**31), "`population`"),
    (lambda: load("synthetic", seed="a"), "`seed`"),
    (lambda: load("synthetic-niid", clients=10**9), "`clients`"),
    (lambda: load("synthetic", hold_out="last"), "`hold_out`"),
    (lambda: Rule("a+b", init=None, speaks=None), "`name`"),
]  # fmt: skip
CASES = [
    *((lambda name=name, value=value: run(**{name: value}), NAMED.get(name, name))
      for name, values in SETTINGS.items() for value in values),
    *((lambda make=make, value=value: make(value), needle)
      for make, values, needle in FACTORIES for value in values),
    *((lambda text=text: parse(text), needle) for text, needle in POLICIES.items()),
    *OTHERS,
]  # fmt: skip


def assert_refused(call, needle):
    with pytest.raises(TaciturnError) as error:
        call()
    assert needle in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize(
    ("call", "needle"), CASES, ids=[f"{i}: {needle}" for i, (_, needle) in enumerate(CASES)]
)
def test_it_is_an_error_that_names_the_argument(call, needle):
    assert_refused(call, needle)


@pytest.mark.parametrize("name", OF_TASKS)
def test_data_that_are_wrong_are_an_error_that_names_the_file(name, places):
    for file, path in places.items():
        if file in OF_ALL or file.startswith(OF_TASKS[name]):
            assert_refused(lambda path=path: load(name, data=path), path.name)
