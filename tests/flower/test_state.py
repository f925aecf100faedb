"""A server that dies and comes back."""

import json
import os

import federation
import numpy as np
import pytest
from federation import SIZE, LocalGrid, flat, model, pulled, record, run, targets
from flwr.app import MetricRecord
from flwr.serverapp import strategy as flower

from taciturn import TaciturnError, runs
from taciturn.federation.state import Store
from taciturn.flower import Taciturn
from taciturn.report import page, series

POLICY = "adaptive,k=0+ou"


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
    assert [arm["name"] for arm in shown["arms"]] == [POLICY]
    assert {panel["key"] for panel in shown["panels"]} >= {
        "accuracy", "accuracy-upload", "spoke", "norms", "bytes", "bits"
    }  # fmt: skip
    assert "stand_in" in shown["tables"]


def test_results_of_evaluation_and_the_log_count_on(tmp_path, caplog):
    _, expected = start(None, 5, evaluate_fn=evaluate)
    start(tmp_path, 3, flower.FedAvg(), evaluate_fn=evaluate)
    caplog.clear()
    strategy, result = start(tmp_path, 5, flower.FedAvg(), evaluate_fn=evaluate)
    assert result.evaluate_metrics_serverapp == expected.evaluate_metrics_serverapp
    found = result.evaluate_metrics_clientapp
    assert {t: metrics["loss"] for t, metrics in found.items()} == dict.fromkeys(range(1, 6), 2.0)
    lines = [line for line in caplog.messages if line.startswith("[ROUND")]
    assert lines == ["[ROUND 4/5]", "[ROUND 5/5]"]
    assert "Number of rounds: 5" in caplog.text
    assert [row["f1"] for row in strategy.history] == [t / 7 for t in range(1, 6)]
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


def assert_whole(folder, undisturbed):
    """A run that goes on in the folder ends as it would have, with nothing left over."""
    expected, result = undisturbed
    strategy, found = start(folder, 4)
    np.testing.assert_array_equal(flat(found.arrays), flat(result.arrays))
    assert [row["round"] for row in strategy.history] == [1, 2, 3, 4]
    assert (folder / "metrics.csv").read_text() == (expected / "metrics.csv").read_text()
    assert {path.name for path in folder.iterdir()} == {
        ".running.lock", "metrics.csv", "nodes.csv", "results.jsonl", "state-4.safetensors",
        "state.json", "summary.json", "weights.safetensors",
    }  # fmt: skip


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
    assert_whole(tmp_path, undisturbed)


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
