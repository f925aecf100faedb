"""A server that dies and comes back."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, flat, model, pulled, record
from flwr.app import MetricRecord
from flwr.serverapp import strategy as flower
from test_flower import EXAMPLES, MEAN_BASED, NODES, SIZE, targets

from taciturn import TaciturnError, runs
from taciturn.flower import Taciturn
from taciturn.flower.state import ResultsLog
from taciturn.report import series

POLICY = "adaptive,k=0+ou"


def start(folder, rounds, inner="FedAvg", policy=POLICY, first=None, exclude=(), **options):
    strategy = Taciturn(MEAN_BASED[inner](), policy, folder=folder, seed=1, exclude=exclude)
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
    result = strategy.start(grid, first or model(SIZE), num_rounds=rounds, **options)
    return strategy, result


def test_figures_of_the_app_never_replace_those_of_a_round(tmp_path):
    strategy, _ = start(tmp_path, 2)
    threshold = strategy.history[-1]["threshold"]
    told = MetricRecord({"threshold": 99.0, "asked": 99.0})
    strategy, _ = start(tmp_path, 2, evaluate_fn=lambda *_: told)
    assert strategy.history[-1]["threshold"] == threshold
    assert strategy.history[-1]["app_threshold"] == strategy.history[-1]["app_asked"] == 99.0


def test_a_budget_of_a_run_that_is_made_longer_is_spread_anew(tmp_path, caplog):
    for rounds in (2, 4):
        strategy, _ = start(tmp_path, rounds, policy="budget:45B,per=client")
    assert (strategy._memory.rule.rounds, strategy._memory.rule.run) == (4, 4)
    assert "the run had 2 rounds and now has 4: bytes are spread anew" in caplog.text


def test_results_are_cut_whole_or_not_at_all(tmp_path, monkeypatch):
    log = ResultsLog(tmp_path / "results.jsonl")
    for round in (1, 2, 3):
        log.add(round, "train_metrics_clientapp", {"loss": 1.0})
    written = log.path.read_text()

    def die(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", die)
        with pytest.raises(Killed):
            log.load(2)
    assert log.path.read_text() == written
    assert list(log.load(2)["train_metrics_clientapp"]) == [1, 2]
    assert log.path.read_text() == "".join(written.splitlines(keepends=True)[:2])


def test_the_strategy_can_be_started_twice_without_a_folder():
    strategy = Taciturn(MEAN_BASED["FedAvg"](), POLICY)
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
    first = strategy.start(grid, model(SIZE), num_rounds=3)
    again = strategy.start(grid, model(SIZE), num_rounds=3)
    np.testing.assert_array_equal(flat(first.arrays), flat(again.arrays))
    assert len(strategy.history) == 3


def test_the_model_is_saved_once(tmp_path):
    start(tmp_path, 2, "FedAdam")
    names = runs.read_arrays(tmp_path / "state-2.safetensors")
    assert {name.rpartition("/")[0] for name in names} == {
        "model", "nodes", "rule", "stand_in", "inner/m_t", "inner/v_t"
    }  # fmt: skip


class Killed(BaseException):
    """What `kill -9` leaves behind is what was written before it."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Four rounds that nothing happens to: the folder and the result."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, start(folder, 4)[1]


def evaluate(round, arrays):
    return MetricRecord({"accuracy": round / 10, "loss": 1.0})


@pytest.mark.parametrize("moment", range(40))
def test_whatever_the_moment_of_its_death_at_most_one_round_is_lost(
    moment, undisturbed, tmp_path, monkeypatch
):
    folder, expected = undisturbed
    calls = 0

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
        died = False
        try:
            start(tmp_path, 4)
        except Killed:
            died = True
    state = tmp_path / "state.json"
    done = runs.read_json(state)["round"] if state.exists() else 0
    # The first round is saved when arrays and `state.json` have been written and renamed.
    if died and moment >= 6:
        assert done >= 1
    strategy, result = start(tmp_path, 4)
    np.testing.assert_array_equal(flat(result.arrays), flat(expected.arrays))
    assert [row["round"] for row in strategy.history] == [1, 2, 3, 4]
    assert (tmp_path / "metrics.csv").read_text() == (folder / "metrics.csv").read_text()
    # Nothing is left of it: no temporary file, no arrays of other rounds.
    assert {path.name for path in tmp_path.iterdir()} == {
        ".running.lock", "metrics.csv", "nodes.csv", "results.jsonl", "state-4.safetensors",
        "state.json", "summary.json", "weights.safetensors",
    }  # fmt: skip


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_state import start
calls, fsync = [], os.fsync

def dying(descriptor):
    calls.append(1)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)

os.fsync = dying
start(sys.argv[2], 4)
"""


@pytest.mark.parametrize(("sync", "file"), [(8, ".state-2.safetensors."), (9, ".state.json.")])
def test_what_a_killed_server_leaves_is_removed(sync, file, undisturbed, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(run), str(sync)]
    killed = subprocess.run(command, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in run.iterdir() if path.name.startswith(file)]
    _, result = start(run, 4)
    np.testing.assert_array_equal(flat(result.arrays), flat(undisturbed[1].arrays))
    assert {path.name for path in run.iterdir()} == {path.name for path in undisturbed[0].iterdir()}


def test_results_that_lack_rounds_say_so(tmp_path):
    start(tmp_path, 4)
    log = tmp_path / "results.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:2] + lines[4:]))
    with pytest.raises(TaciturnError, match=r"results.jsonl lacks rounds before round 5"):
        start(tmp_path, 5)


def test_a_table_that_is_removed_while_it_runs_is_written_again(tmp_path):
    def remove(round, arrays):
        if round == 2:
            (tmp_path / "metrics.csv").unlink()

    start(tmp_path, 3, evaluate_fn=remove)
    assert len(runs.read_csv(tmp_path / "metrics.csv")) == 3


def test_a_round_costs_the_same_however_many_there_were(tmp_path):
    sizes = []

    def look(round, arrays):
        if round:
            sizes.append((tmp_path / "state.json").stat().st_size)
            sizes.append((tmp_path / "metrics.csv").stat().st_ino)

    start(tmp_path, 8, evaluate_fn=look)
    assert max(sizes[::2]) - min(sizes[::2]) < 60  # digits, and the numbers of the first round
    assert len(set(sizes[1::2])) == 1  # appended to, not written anew


class Keeping(flower.FedAvg):
    """A strategy with numbers, an array and a list of its own; its step depends on a type."""

    def __init__(self, eta: float = 0.1) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.eta, self.calls, self.trace, self.table = eta, 0, np.zeros(3), []
        self.factor, self.worst, self.last, self.least = 1.0, 0.0, 0.0, np.float32(0)

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.calls += 1
        self.trace = self.trace + server_round
        self.table = [*self.table, np.array(float(server_round))]
        self.worst, self.last, self.least = np.inf, float("nan"), np.float32(-np.inf)
        self.factor = np.float32(self.factor) * np.float32(0.9)
        return record(**{name: a.numpy() * self.factor for name, a in arrays.items()}), metrics


def test_what_a_strategy_of_ones_own_keeps_is_kept(tmp_path):
    """Numbers that differ from those at the start are state, the others are settings."""
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
    ends = []
    for folder, rounds, eta in ((None, 4, 0.1), (tmp_path, 3, 0.1), (tmp_path, 4, 0.5)):
        inner = Keeping(eta)
        Taciturn(inner, "full", folder=folder).start(grid, model(SIZE), num_rounds=rounds)
        ends.append(inner)
    whole, _, again = ends
    assert again.eta == 0.5
    for name in ("calls", "trace", "table", "factor", "worst", "last", "least"):
        ours, theirs = getattr(again, name), getattr(whole, name)
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"policy": "full"}, "holds a run with the policy adaptive,k=0"),
     ({"inner": "FedAdam"}, "a run of FedAvg, this one has FedAdam"),
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


def test_half_a_line_from_before_the_first_state_costs_nothing(tmp_path):
    (tmp_path / "results.jsonl").write_text('{"round": 0, "kind": "evaluate_metrics_serv')
    start(tmp_path, 2)
    _, result = start(tmp_path, 3)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]


def test_numbers_and_counters_of_a_model_keep_their_shape(tmp_path):
    from flwr.app import Message, RecordDict
    from flwr.clientapp import ClientApp

    from taciturn.flower import speak

    app = ClientApp(mods=[speak()])

    @app.train()
    def train(message, context):
        trained = {
            k: a.numpy() + a.numpy().dtype.type(1) for k, a in message.content["arrays"].items()
        }
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": record(**trained), "metrics": metrics})
        return Message(content, reply_to=message)

    first = record(scale=np.array(1.0, np.float32), count=np.array(0), w=np.zeros((2, 2), "f4"))
    for rounds in (1, 2):
        strategy = Taciturn(MEAN_BASED["FedAvgM"](), POLICY, folder=tmp_path)
        result = strategy.start(LocalGrid(app, 3), first, num_rounds=rounds)
    assert {name: tuple(array.shape) for name, array in result.arrays.items()} == {
        "scale": (), "count": (), "w": (2, 2)
    }  # fmt: skip
    assert result.arrays["count"].dtype == "int64"


def test_the_folder_can_be_read_like_that_of_a_simulation(tmp_path):
    _, result = start(tmp_path, 3, evaluate_fn=evaluate)
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2, 3]
    with open(tmp_path / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["arm"], row["seed"], row["round"]) for row in rows] == [
        (POLICY, "0", str(t)) for t in (1, 2, 3)
    ]
    assert [float(row["accuracy"]) for row in rows] == [0.1, 0.2, 0.3]
    columns = {"spoke", "rejected", "threshold", "norm_mean", "norm_std", "bytes_up", "overhead_up",
               "bytes_down", "overhead_down", "accuracy", "loss"}  # fmt: skip
    assert columns <= set(rows[0])
    summary = json.loads((tmp_path / "summary.json").read_text())
    keys = {"rule", "stand_in", "codec", "rounds", "spoke_share", "upload_bytes",
            "upload_overhead_bytes", "upload_share", "accuracy_mean"}  # fmt: skip
    assert keys <= set(summary)
    assert summary["accuracy_mean"] == pytest.approx(30.0)
    (one,) = series.read(tmp_path).values()
    shown = one.summary()
    assert shown["accuracy_mean"] == pytest.approx(30.0)
    for key in ("upload_bytes", "upload_overhead_bytes", "upload_share", "spoke_share"):
        assert shown[key] == pytest.approx(summary[key])
    assert shown["upload_bytes"] == summary["total"]["bytes_up"]
    weights = runs.read_arrays(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(weights["a"], result.arrays["a"].numpy())


def test_evaluation_by_clients_is_kept(tmp_path):
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
    strategy = Taciturn(flower.FedAvg(), POLICY, folder=tmp_path)
    result = strategy.start(grid, model(SIZE), num_rounds=2)
    assert [row["accuracy"] for row in strategy.history] == [0.5, 0.5]
    assert result.evaluate_metrics_clientapp[2]["loss"] == 2.0
    again = Taciturn(flower.FedAvg(), POLICY, folder=tmp_path)
    found = again.start(grid, model(SIZE), num_rounds=3).evaluate_metrics_clientapp
    assert {t: metrics["loss"] for t, metrics in found.items()} == {1: 2.0, 2: 2.0, 3: 2.0}
    assert [row["accuracy"] for row in again.history] == [0.5, 0.5, 0.5]
