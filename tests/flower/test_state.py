"""A server that dies and comes back: its run ends bit for bit where it would have ended."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import federation
import numpy as np
import pytest
from federation import NODES, SIZE, LocalGrid, flat, model, pulled, record, run, targets
from flwr.app import MetricRecord
from flwr.serverapp import strategy as flower

from taciturn import TaciturnError, runs
from taciturn.federation import client
from taciturn.federation.state import Store
from taciturn.flower import Taciturn, speak
from taciturn.report import page, series

POLICY = "adaptive,k=0+ou"
POLICIES = [
    "full", "adaptive,k=0.3+ou", "fixed:0.7+last", "adaptive,k=0.3,robust=true,at_most=2+ou",
    "adaptive,k=-0.2,robust=true+ignore", "adaptive,k=0.7+ou,mode=paper",
    "adaptive,k=0.1+ou+eden:0.5", "random:0.5+ou", "optimal:0.4+last+eden:1", "budget:5%",
]  # fmt: skip


class Killed(BaseException):
    """What `kill -9` leaves behind is what was written before it."""


def start(folder, rounds, inner=flower.FedAvg, policy=POLICY, first=None, **options):
    strategy, result, _ = run(policy, rounds, inner, start=first, folder=folder, **options)
    return strategy, result


def evaluate(round, arrays):
    return MetricRecord({"accuracy": round / 10, "f1": round / 7, "asked": 99.0})


def test_the_folder_can_be_read_like_that_of_a_simulation(tmp_path):
    strategy, result = start(tmp_path, 3, evaluate_fn=evaluate)
    rows = runs.read_csv(tmp_path / "metrics.csv")
    assert [(row["arm"], row["seed"], row["round"]) for row in rows] == [
        (POLICY, "0", str(t)) for t in (1, 2, 3)
    ]
    assert [float(row["accuracy"]) for row in rows] == [0.1, 0.2, 0.3]
    assert set(strategy.history[0]) <= set(rows[0])
    # A figure of the app never replaces one of the round.
    assert (rows[0]["asked"], rows[0]["app_asked"]) == ("5", "99.0")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"rule", "stand_in", "codec", "rounds"} <= set(summary)
    assert summary["accuracy_mean"] == pytest.approx(30.0)
    (one,) = series.read(tmp_path).values()
    shown = one.summary()
    for key in ("upload_bytes", "upload_overhead_bytes", "upload_share", "spoke_share",
                "accuracy_mean"):  # fmt: skip
        assert shown[key] == pytest.approx(summary[key])
    assert shown["upload_bytes"] == summary["total"]["bytes_up"]
    weights = runs.read_arrays(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(weights["a"], result.arrays["a"].numpy())
    shown = page.content([tmp_path], series.read_all([tmp_path]))
    assert shown["ended"]
    assert {panel["key"] for panel in shown["panels"]} >= {"accuracy-upload", "spoke", "norms"}


def test_results_of_evaluation_and_the_log_count_on(tmp_path, caplog):
    _, expected = start(None, 5, evaluate_fn=evaluate)
    start(tmp_path, 3, flower.FedAvg(), evaluate_fn=evaluate)
    caplog.clear()
    _, result = start(tmp_path, 5, flower.FedAvg(), evaluate_fn=evaluate)
    assert result.evaluate_metrics_serverapp == expected.evaluate_metrics_serverapp
    found = result.evaluate_metrics_clientapp
    assert {t: metrics["loss"] for t, metrics in found.items()} == dict.fromkeys(range(1, 6), 2.0)
    lines = [line for line in caplog.messages if line.startswith("[ROUND")]
    assert lines == ["[ROUND 4/5]", "[ROUND 5/5]"]
    assert "Number of rounds: 5" in caplog.text
    rows = runs.read_csv(tmp_path / "metrics.csv")
    assert [float(row["f1"]) for row in rows] == [t / 7 for t in range(1, 6)]


def test_a_budget_of_a_run_that_is_made_longer_is_spread_anew(tmp_path, caplog):
    for rounds in (2, 4):
        strategy, _ = start(tmp_path, rounds, policy="budget:45B,per=client")
    assert (strategy.memory.rule.rounds, strategy.memory.rule.run) == (4, 4)
    assert "the run had 2 rounds and now has 4: bytes are spread anew" in caplog.text


def test_results_are_cut_whole_or_not_at_all(tmp_path, monkeypatch):
    store, log = Store(tmp_path, None, []), tmp_path / "results.jsonl"
    for round in (1, 2, 3):
        store.add(round, "train_metrics_clientapp", {"loss": 1.0})
    written = log.read_text()

    def die(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", die)
        with pytest.raises(Killed):
            store.results(2)
    assert log.read_text() == written
    assert list(store.results(2)["train_metrics_clientapp"]) == [1, 2]
    assert log.read_text() == "".join(written.splitlines(keepends=True)[:2])


def test_the_strategy_can_be_started_twice_without_a_folder():
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), POLICY)
    grid = LocalGrid(pulled(targets()), 5)
    first, again = (strategy.start(grid, model(), num_rounds=3) for _ in range(2))
    np.testing.assert_array_equal(flat(first.arrays), flat(again.arrays))
    assert len(strategy.history) == 3


def test_a_folder_has_one_server(tmp_path):
    def second(round, arrays):
        if round == 1:
            with pytest.raises(TaciturnError, match="is in use: another process is writing"):
                start(tmp_path, 2)

    start(tmp_path, 2, evaluate_fn=second)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Four rounds that nothing happens to: the folder and the result."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, start(folder, 4)[1]


@pytest.mark.parametrize("moment", range(40))
def test_whatever_the_moment_of_its_death_at_most_one_round_is_lost(
    moment, undisturbed, tmp_path, monkeypatch
):
    calls, died = 0, False

    def dying(function):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls > moment:
                raise Killed
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "fsync", "unlink"):
            patch.setattr(os, name, dying(getattr(os, name)))
        try:
            start(tmp_path, 4)
        except Killed:
            died = True
    # The first round is saved when arrays and `state.json` have been written and renamed.
    if died and moment >= 6:
        assert runs.read_json(tmp_path / "state.json")["round"] >= 1
    # What goes on ends as it would have, with nothing left over.
    expected, result = undisturbed
    strategy, found = start(tmp_path, 4)
    np.testing.assert_array_equal(flat(found.arrays), flat(result.arrays))
    assert [row["round"] for row in strategy.history] == [1, 2, 3, 4]
    assert (tmp_path / "metrics.csv").read_text() == (expected / "metrics.csv").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {
        ".running.lock", "metrics.csv", "nodes.csv", "results.jsonl", "state-4.safetensors",
        "state.json", "summary.json", "weights.safetensors",
    }  # fmt: skip


def test_results_that_lack_rounds_say_so(tmp_path):
    start(tmp_path, 4)
    log = tmp_path / "results.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:2] + lines[4:]))
    with pytest.raises(TaciturnError, match=r"results.jsonl lacks rounds before round 5"):
        start(tmp_path, 5)


def test_half_a_line_from_before_the_first_state_costs_nothing(tmp_path):
    (tmp_path / "results.jsonl").write_text('{"round": 0, "kind": "evaluate_metrics_serv')
    start(tmp_path, 2)
    _, result = start(tmp_path, 3)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]


def test_the_state_of_a_round_is_as_large_as_that_of_any_other(tmp_path):
    sizes = []

    def look(round, arrays):
        if round:
            sizes.append((tmp_path / "state.json").stat().st_size)

    start(tmp_path, 8, flower.FedAdam, evaluate_fn=look)
    assert max(sizes) - min(sizes) < 60  # digits, and the numbers of the first round
    assert len(runs.read_csv(tmp_path / "metrics.csv")) == 8
    names = runs.read_arrays(tmp_path / "state-8.safetensors")
    assert {name.rpartition("/")[0] for name in names} == {  # the model is saved once
        "model", "rule", "stand_in", "inner/m_t", "inner/v_t"
    }  # fmt: skip


class Keeping(flower.FedAvg):
    """A strategy with numbers, arrays and a list of its own; its step depends on a type."""

    def __init__(self, eta: float = 0.1) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.eta, self.calls, self.trace, self.table = eta, 0, np.zeros(3), []
        self.factor, self.worst, self.last, self.least = 1.0, 0.0, 0.0, np.float32(0)
        self.best = record(a=np.zeros(2))

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.calls += 1
        self.trace = self.trace + server_round
        self.table = [*self.table, np.array(float(server_round))]
        self.worst, self.last, self.least = np.inf, float("nan"), np.float32(-np.inf)
        self.factor = np.float32(self.factor) * np.float32(0.9)
        self.best = record(a=self.best["a"].numpy() + 1)
        return record(**{name: a.numpy() * self.factor for name, a in arrays.items()}), metrics


class Around(flower.FedAvg):
    """A wrapper of somebody's own, such as one that logs."""

    def __init__(self, inner) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.inner = inner

    def aggregate_train(self, server_round, replies):
        return self.inner.aggregate_train(server_round, replies)


@pytest.mark.parametrize("wrap", [lambda inner: inner, Around])
def test_what_a_strategy_of_ones_own_keeps_is_kept(wrap, tmp_path):
    """Numbers that differ from those at the start are state, the others are settings."""
    ends = []
    for folder, rounds, eta in ((None, 4, 0.1), (tmp_path, 3, 0.1), (tmp_path, 4, 0.5)):
        ends.append(inner := Keeping(eta))
        start(folder, rounds, wrap(inner), "full")
    whole, _, again = ends
    assert again.eta == 0.5
    for name in ("calls", "trace", "table", "factor", "worst", "last", "least"):
        ours, theirs = getattr(again, name), getattr(whole, name)
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(ours, theirs)
    assert federation.numpy(again.best)["a"].tolist() == [4, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"policy": "full"}, "run of adaptive,k=0\\+ou around FedAvg, this one is of full around"),
     ({"inner": flower.FedAdam}, "around FedAvg, this one is of .* around FedAdam"),
     ({"exclude": "a"}, rf"state for {SIZE} weights, .* was `exclude` another"),
     ({"first": record(a=np.zeros((2, 3), "f4"), b=np.zeros(4, "f4"))}, "model of other arrays"),
     ({"about": {}}, r"state.json cannot be read: it is of another version"),
     ({"about": []}, r"state.json cannot be read: it is of another version")],
)  # fmt: skip
def test_another_run_cannot_go_on(change, message, tmp_path):
    start(tmp_path, 1)
    if "about" in change:
        runs.write_json(tmp_path / "state.json", change.pop("about"))
    with pytest.raises(TaciturnError, match=message):
        start(tmp_path, 2, **change)


def toss(message, context, call_next):
    """A mod around `speak`: a node's draw follows from round and node, not from the system."""
    draws = np.random.default_rng((message.content["config"]["server-round"], context.node_id))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_uniform", draws.random)
        return call_next(message, context)


def written(folder):
    """When the state in a folder was written; 0 where there is none."""
    state = Path(folder, "state.json")
    return state.stat().st_mtime_ns if state.exists() else 0


def tossed(folder, rounds, policy, inner="FedAvg", **options):
    """`start` with such draws; a run that goes on has its seed in its state."""
    seed = None if folder is not None and written(folder) else 5
    mods = [toss, speak()]
    return start(folder, rounds, getattr(flower, inner), policy, mods=mods, seed=seed, **options)


def assert_same(ours, theirs):
    """Model, history, results and what the server remembers: bits and types."""
    (a, found), (b, expected) = ours, theirs
    np.testing.assert_array_equal(flat(found.arrays), flat(expected.arrays))
    assert repr(a.history) == repr(b.history)
    for x, y in zip(a.memory.rule + tuple(a.memory.stand_in),
                    b.memory.rule + tuple(b.memory.stand_in), strict=True):  # fmt: skip
        assert type(x) is type(y)
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)
    assert repr(found.train_metrics_clientapp) == repr(expected.train_metrics_clientapp)
    assert a.nodes == b.nodes


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_goes_on_bit_for_bit(policy, dtype, tmp_path):
    def play(folder, last=None):
        def dying(round, arrays):
            if round == last:
                raise Killed

        first = record(**{name: a.astype(dtype) for name, a in federation.numpy(model()).items()})
        wanted = targets(nodes=2 if dtype == "float16" else NODES)
        return tossed(folder, 6, policy, first=first, wanted=wanted, evaluate_fn=dying)

    for last in (1, 3):
        with pytest.raises(Killed):
            play(tmp_path, last)
    assert_same(play(tmp_path), play(None))


SERVER = "import sys, test_state; test_state.tossed(sys.argv[1], 400, *sys.argv[2:])"


@pytest.mark.slow
def test_killed_processes_go_on_bit_for_bit(tmp_path):
    """`kill −9` after a random time, five times over."""
    draws, what = np.random.default_rng(0), ["adaptive,k=0.3+ou", "FedAdam"]
    command, here = [sys.executable, "-c", SERVER, str(tmp_path), *what], Path(__file__).parent
    killed = 0
    for _ in range(5):
        server = subprocess.Popen(command, cwd=here, stderr=subprocess.DEVNULL)
        before = written(tmp_path)
        while written(tmp_path) == before and server.poll() is None:
            time.sleep(0.01)
        timer = threading.Timer(draws.uniform(0, 0.2), os.kill, (server.pid, signal.SIGKILL))
        timer.start()
        killed += server.wait() == -signal.SIGKILL
        timer.cancel()
    assert killed == 5
    assert_same(*(tossed(folder, 400, *what) for folder in (tmp_path, None)))
    assert not list(tmp_path.glob(".*state*"))  # nothing is left of what they had begun to write


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_five_hundred_rounds_need_no_more_memory_than_fifty():
    script = str(Path(__file__).with_name("soak.py"))
    subprocess.run([sys.executable, script, "--memory"], check=True)
