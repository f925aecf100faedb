"""Trackers: what they are told, and what the real libraries have of it, without a network."""

import importlib.util
import os
import sqlite3
import sys
from contextlib import closing
from types import ModuleType

import numpy as np
import pytest

from taciturn import cli, track
from taciturn.errors import MissingExtra, RunError, UnknownName
from taciturn.progress import Compiling, Progress

SMALL = ["synthetic", "--rounds", "3", "--cohort", "3", "--evaluate-every", "2", "--seeds", "2"]


def told(arm="full", seeds=(0, 1), **columns):
    return Progress(arm, None, 5, 0.5, 8, 20, 1000.0, seeds,
                    {name: np.array(column) for name, column in columns.items()})  # fmt: skip


class Recorded:
    """A tracker that keeps what it gets."""

    def __init__(self, monkeypatch, opens=None, adds=None):
        self.runs, self.closed, self.opens, self.adds = {}, [], opens, adds
        monkeypatch.setitem(track._OPEN, "wandb", self.open)
        monkeypatch.setattr(track, "require", lambda module, extra: pytest)  # any module

    def open(self, library, run, folder, settings):
        if self.opens:
            raise self.opens
        rows, self.settings = self.runs.setdefault(run, []), settings
        return track.Run(lambda new: self.add(rows, new), lambda: self.closed.append(run))

    def add(self, rows, new):
        if self.adds:
            raise self.adds
        rows.extend(new)


def test_a_tracker_gets_means_over_seeds_of_every_round(monkeypatch, tmp_path):
    recorded = Recorded(monkeypatch)
    settings = {"lr": 0.1, "clip": None}
    with closing(track.Tracker("wandb", tmp_path, settings, seeds=(0, 1))) as tracker:
        tracker(Compiling(2))
        tracker(told(spoke=[[1, 2], [3, 4]], accuracy=[[np.nan, 0.5], [np.nan, 0.7]]))
    assert recorded.runs == {
        "full": [(4, {"spoke": 2}),
                 (5, {"spoke": 3, "accuracy": pytest.approx(0.6), "uploaded_bytes": 1000})]
    }  # fmt: skip
    assert recorded.settings == {"arm": "full", "lr": 0.1}
    assert recorded.closed == ["full"]


def test_a_tracker_may_fail_during_a_run_but_has_to_start(monkeypatch, tmp_path, caplog):
    Recorded(monkeypatch, adds=OSError("no network"))
    with closing(track.Tracker("wandb", tmp_path, {}, seeds=(0, 1))) as tracker:
        for _ in range(3):
            tracker(told(spoke=[[1], [2]]))
    assert caplog.messages == ["wandb failed, the run goes on without it: no network"]
    Recorded(monkeypatch, opens=OSError("no\nkey"))
    with pytest.raises(RunError, match=r"^wandb cannot be started: no key$"):
        track.Tracker("wandb", tmp_path, {}).open("full")


def test_the_engine_and_the_plain_loop_tell_every_round(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = ["run", *SMALL, "--policy", "full", "--track", "wandb"]
    for options, names in (([], ["full"]), (["--plain"], ["full, seed 0", "full, seed 1"])):
        recorded = Recorded(monkeypatch)
        cli.main([*asked, *options])
        assert list(recorded.runs) == sorted(recorded.closed) == names
        for rows in recorded.runs.values():
            assert [(t, figures["spoke"]) for t, figures in rows] == [(1, 3), (2, 3), (3, 3)]
            assert ["accuracy" in figures for _, figures in rows] == [False, True, True]
            assert rows[-1][1]["uploaded_bytes"] == 3 * 3 * 101 * 4


def test_what_is_missing_is_named_before_anything_is_made(monkeypatch, tmp_path):
    with pytest.raises(UnknownName, match=r"no tracker called `wandbb`\. Did you mean `wandb`"):
        track.library("wandbb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingExtra, match=r"`trackio` is not installed. .*pip install"):
        cli.main(["run", *SMALL, "--track", "trackio"])
    assert list(tmp_path.iterdir()) == []
    # A folder of the same name, as trackers make them, is no library.
    monkeypatch.setattr(track, "require", lambda module, extra: ModuleType(module))
    with pytest.raises(MissingExtra, match=r"`wandb` is not installed. .*pip install"):
        track.library("wandb")


# With the real libraries -----------------------------------------------------------------------


ARMS = ["full", "random:0.5+ignore"]


def real(test):
    return pytest.mark.slow(pytest.mark.filterwarnings("ignore")(test))


@pytest.fixture
def offline(request, monkeypatch, tmp_path):
    """A folder in which the tracker of the test's name has two arms side by side."""
    name = request.function.__name__.removeprefix("test_")
    if importlib.util.find_spec(name) is None:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(f'{name} is not installed: pip install ".[track]"')
    monkeypatch.chdir(tmp_path)
    for variable, value in (
        ("WANDB_MODE", "offline"),
        ("WANDB_SILENT", "true"),
        ("WANDB_ERROR_REPORTING", "false"),
        ("TRACKIO_DIR", str(tmp_path / "trackio")),
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}"),
    ):
        monkeypatch.setenv(variable, value)
    with closing(track.Tracker(name, tmp_path / "run", {"lr": 0.1}, seeds=(0, 1))) as tracker:
        for arm in ARMS:
            tracker.open(arm)
        for arm in ARMS:
            tracker(told(arm, accuracy=[[0.25, 0.5], [0.25, 0.5]], loss=[[np.nan, 2.0]] * 2))
    return tmp_path


@real
def test_tensorboard(offline):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for arm in ("full", "random_0.5+ignore"):
        events = EventAccumulator(str(offline / "run" / "tensorboard" / arm)).Reload()
        found = {name: [(e.step, e.tensor_proto.float_val[0]) for e in events.Tensors(name)]
                 for name in events.Tags()["tensors"]}  # fmt: skip
        assert found == {"accuracy": [(4, 0.25), (5, 0.5)], "loss": [(5, 2.0)],
                         "uploaded_bytes": [(5, 1000.0)]}  # fmt: skip


@real
def test_mlflow(offline):
    import mlflow

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("taciturn")
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(found) == set(ARMS)
    for name, run in found.items():
        assert run.info.status == "FINISHED"
        assert run.data.params == {"arm": name, "lr": "0.1"}
        history = client.get_metric_history(run.info.run_id, "accuracy")
        assert [(point.step, point.value) for point in history] == [(4, 0.25), (5, 0.5)]


@real
def test_trackio(offline):
    with sqlite3.connect(offline / "trackio" / "taciturn.db") as base:
        found = base.execute("select run_name, step, metrics from metrics").fetchall()
    assert {(run, step) for run, step, _ in found} == {(arm, t) for arm in ARMS for t in (4, 5)}
    assert all(b'"accuracy":' in bytes(metrics) for _, _, metrics in found)


@real
def test_wandb(offline):
    importlib.import_module("wandb").teardown()  # its service writes on when a run has ended
    files = sorted((offline / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    data = b"".join(file.read_bytes() for file in files)
    for text in (b"full", b"random:0.5+ignore", b"accuracy", b"uploaded_bytes", b"taciturn"):
        assert text in data
    assert data.count(b"accuracy") >= 4  # two rounds of two arms
