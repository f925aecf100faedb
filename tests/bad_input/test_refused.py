"""Bad input: an error that names what is wrong, soon, without much memory, and before training.

A case is a call or a command line, and a piece of what it must say; `NAME` in braces is a file of
`files.py`. Whatever gets as far as training was accepted, and fails the case. What each setting,
argument and file may be is seen in Python; of the command line, every way to it once.
"""

import functools
import shlex
import signal
from contextlib import suppress
from pathlib import Path

import files
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import taciturn as package
from taciturn import Generated, Policy, Stored, Task, checks, compare, parse, simulate
from taciturn.core import client, server
from taciturn.core.rules import Rule
from taciturn.errors import InputError, TaciturnError
from taciturn.sim import engine, reference
from taciturn.tasks import TASKS, load

X = np.zeros((6, 2), np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])
TEST = {"x": X, "y": Y}
LOSS, METRICS = package.classification(lambda params, x, key: x @ params)
SYNTHETIC = functools.cache(TASKS["synthetic"])  # drawn once
SECONDS = 30
MOST = 1 << 30  # bytes


class Accepted(BaseException):
    """Bad input was taken for good; no `except Exception` on the way catches this."""


@pytest.fixture(scope="session")
def places(tmp_path_factory):
    """The wrong files, made once."""
    return files.make(tmp_path_factory.mktemp("wrong"))


@pytest.fixture(autouse=True)
def refusing(tmp_path, monkeypatch):
    """An empty folder, and a test that may not train, hang, or take more than a GB."""

    def accept(*_):
        raise Accepted(f"the input was accepted, or nothing was said for {SECONDS} s")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACITURN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TACITURN_DATA", raising=False)
    monkeypatch.setitem(TASKS, "synthetic", SYNTHETIC)
    for module in (engine, reference):
        monkeypatch.setattr(module, "stream", accept)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    signal.signal(signal.SIGALRM, accept)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    assert memory("VmHWM") - before < MOST


def memory(key):
    """Bytes of this process, where the system tells."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


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
    return client.respond(package.full(), np.ones(2), trained, examples, None, 0.5)


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
    (package.fixed, [-1, "x"], "`threshold`"),
    (lambda k: package.adaptive(k=k), [np.inf], "`k`"),
    (lambda w: package.adaptive(weighted=w), [1], "`weighted`"),
    (package.random, [-0.1, 1.1], "`probability`"),
    (package.optimal, [0, 1.1], "`share`"),
    (package.ou, ["best", None], "`mode`"),
    (lambda cap: package.ou(cap=cap), [1], "`cap`"),
    (package.quantize, [0, 9, 1.5], "`bits`"),
    (package.eden, [0, 9], "`bits`"),
    (package.top_k, [0, 2], "`share`"),
    (package.sparse_ternary, [0, 2], "`share`"),
    (package.peaks, [0, 40, np.nan, True, "31B", "x", "0%", None, b"4kB"], ""),
    (package.budget, [0, "4", "-1kB", "0%", np.nan, [1]], ""),
    (lambda per: package.budget("4kB", per), ["week", ["run"]], "`per`"),
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
    (lambda: run(policy=package.adaptive()), "`Policy(rule)`"),
    (lambda: compare(task(), ["full"]), "`arms`"),
    (lambda: compare(task(), {}), "`arms`"),
    (lambda: compare(5, {"a": "full"}), "`taciturn.Task`"),
    (lambda: compare("synthetc", {"a": "full"}), "`synthetc`"),
    (lambda: run(progress=5), "`progress`"),
    (lambda: run(plain=1), "`plain`"),
    (lambda: run(plain=True, lanes=1), "`lanes`"),
    (lambda: run(plain=True, devices=1), "`devices`"),
    (lambda: run(round=3), "`rounds`"),
    (lambda: run(seed=1, seeds=2), "`seed`"),
    (lambda: run(client_optimizer=optax.sgd(0.1), lr=0.1), "`lr`"),
    (lambda: run(server_optimizer=optax.sgd(0.1), server_lr=0.1), "`server_lr`"),
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
    (lambda: run(task(loss=lambda *batch: LOSS(*batch).mean())), "not their mean"),
    (lambda: run(task(metrics=lambda p, b: {})), "dict"),
    (lambda: run(task(metrics=lambda p, b: {"right": (b["y"],) * 2}), choice=1), "`loss`"),
    (lambda: run(task(metrics=lambda p, b: {"accuracy": 1.0})), "`accuracy`"),
    (lambda: run(task(clients=stored(y=Y + 1))), "0 to 2"),
    (lambda: run(task(clients=stored(y=Y + 2**40))), "int32"),
    (lambda: run(task(clients=stored(x=X.astype(str)))), "numbers"),
    (lambda: run(task(clients=stored(x=X + 1e300 * np.ones(2)))), "1e+300"),
    (lambda: run(task(test={"x": X, "y": Y[:5]})), "length"),
    (lambda: run(task(test={"x": X[:0], "y": Y[:0]})), "test"),
    (lambda: run(task(test={})), "test"),
    (lambda: run(task(test={"x": [1.0], "y": Y})), "got 1.0"),
    (lambda: run(task(test={"x": X[:, :1], "y": Y})), "TypeError"),
    (lambda: run(task(test_clients=np.zeros(6, int))), "`test_clients`"),
    (lambda: run(task(test=TEST, test_clients=np.zeros(5, int))), "`test_clients`"),
    (lambda: run(task(test=TEST, test_clients=np.zeros(6))), "`test_clients`"),
    (lambda: run(task(test={"x": X, "y": Y + 1})), "0 to 2"),
    (lambda: run(task(hold_out="first")), "`hold_out`"),
    (lambda: Stored.of({"x": X}, [1] * 6).hold_out(), "No client has two examples"),
    (lambda: run(task(cohort=lambda key, t, size: jnp.zeros(size + 1, int))), "`cohort`"),
    (lambda: run(task(cohort=lambda key, t, size: jnp.arange(size)), choice=1), "`choice`"),
    (lambda: run(policy="full+down=eden:1", choice=1), "full+down=eden:1"),
    (lambda: package.evaluate(task(test=TEST), np.zeros((1, 6))), "`weights`"),
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
    (lambda: Rule("mine", init=None, speaks=None, looks_at=("mood",)), "`mood`"),
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


@pytest.mark.parametrize("name", files.OF_TASKS)
def test_data_that_are_wrong_are_an_error_that_names_the_file(name, places):
    for file, path in places.items():
        if file in files.OF_ALL or file.startswith(files.OF_TASKS[name]):
            assert_refused(lambda path=path: load(name, data=path), path.name)


COMMANDS = [
    ("walk", "walk"),
    ("run --rouns 3", "--rouns"),
    ("run synthetic extra", "extra"),
    ("run synthetic --rounds 1.5", "rounds"),
    ("run synthetic --lr 0.1 --rounds 3 --lr=0.2", "`--lr`"),
    ("run synthetic --rounds 1000000 --seeds 1000", "10000"),
    ("run synthetc", "`synthetic`"),
    (f"run {'x' * 300}", "`xxx"),
    ("run synthetic --rule zero", "`zero`"),
    ("run synthetic --policy full --rule full", "`--policy`"),
    ("run synthetic --budget 4kB --rule full", "`--budget`"),
    ("run synthetic --out {not_utf8}", "`out`"),
    ("run npz", "`data`"),
    ("run table --data {csv}", "`client`"),
    ("run table --data {csv} --client user", "`label`"),
    ("run table --data {csv} --client user --label user", "two columns"),
    ("run table --data {csv} --client user --label y --option hidden", "KEY=VALUE"),
    ("run table --data {csv} --client user --label y --option label=a", "KEY=VALUE"),
    ("run idx --data {idx} --split even", "`split`"),
    ("run idx --data {idx}", "`clients`"),
    ("run --config {toml_unknown}", "`rouns`"),
    ("run --import {fails}/own.py", "ZeroDivisionError"),
    ("run --import {missing}", "missing is none"),
    ("run synthetic --sweep lr", "name=value,value"),
    ("run synthetic --sweep lr=0.1,x", "`lr`"),
    ("run synthetic --sweep learning=1", "`learning`"),
    ("compare synthetic", "needs arms"),
    ("compare synthetic --arms 'full; full'", "twice"),
    ("compare synthetic --arms 'full, adaptive+ou'", "separated by semicolons"),
    ("compare synthetic --arms full --policy full", "--policy"),
    ("resume {missing}", "missing"),
    ("resume {empty}", "config.toml"),
    ("resume {run}", "Python"),
    ("runs {missing}", "missing is not a folder"),
    ("data look", "look"),
    ("data fetch", "needs a name"),
    ("data fetch mnist", "`mnist`"),
    ("data list --data {text}", "`data`"),
    ("data show synthetic --out {missing}/a/b.png", "cannot be written"),
    ("report", "run folder"),
    ("watch {missing}", "missing is not a folder"),
    ("watch {empty} --port 80000", "80000"),
    ("report {missing}", "metrics.csv"),
    ("report {run_without_rows}", "run_without_rows"),
    ("report {run_of_other_columns}", "'seed'"),
    ("report {run_cut_in_the_middle}", "row 2"),
    ("report {run_without_bytes}", "`bytes_up`"),
    ("report {run_with_words}", "many"),
    ("report {run_in_latin}", "run_in_latin"),
    ("report {run} --out {missing}/a/b.png", "cannot be written"),
    ("report {run} --out {folder}", "`--out`"),
    ("frontier glyphs --policies nobody --out {new}", "`nobody`"),
]


def error_of(taciturn, *arguments):
    """What a command that is refused says, in one line if it is not its parser that refuses."""
    code, out, err = taciturn(*arguments)
    assert (code in (1, 2), out) == (True, ""), err
    if code == 1:
        assert err.startswith("taciturn: ")
        assert err.count("\n") == 1
        assert len(err) < 1_000
    return err


@pytest.mark.parametrize(("line", "needle"), COMMANDS, ids=[line[:70] for line, _ in COMMANDS])
def test_it_is_one_line_that_says_what_is_wrong(line, needle, places, taciturn):
    err = error_of(taciturn, *(word.format_map(places) for word in shlex.split(line)))
    plain = " ".join(err.replace("│", " ").split())
    assert needle in plain or needle in plain.replace("_", "-")
    assert not Path("runs").exists()
