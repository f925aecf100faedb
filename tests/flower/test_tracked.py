"""A federation that a tracker follows, and a page that shows it."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, model, pulled
from flwr.app import MetricRecord
from test_flower import EXAMPLES, MEAN_BASED, NODES, SIZE, targets

from taciturn import track
from taciturn.flower import Taciturn
from taciturn.report import page, series

POLICY = "adaptive,k=0+ou"


def start(rounds=3, **options):
    strategy = Taciturn(MEAN_BASED["FedAvg"](), POLICY, **options)
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
    strategy.start(grid, model(SIZE), num_rounds=rounds,
                   evaluate_fn=lambda t, arrays: MetricRecord({"accuracy": t / 10}))  # fmt: skip
    return strategy


def test_a_tracker_gets_every_round(tmp_path, monkeypatch):
    got, closed = [], []
    monkeypatch.setattr(track, "require", lambda module, extra: pytest)  # any module
    monkeypatch.setitem(
        track._OPEN, "mlflow",
        lambda library, run, folder, settings: track.Run(got.extend, lambda: closed.append(run)),
    )  # fmt: skip
    strategy = start(track="mlflow", folder=tmp_path)
    assert closed == [POLICY]
    seen = {}
    for round, figures in got:
        seen.setdefault(round, {}).update(figures)
    assert list(seen) == [1, 2, 3]
    for row in strategy.history:
        assert seen[row["round"]] == {
            key: pytest.approx(value) for key, value in row.items()
            if key != "round" and value == value
        }  # fmt: skip
    assert seen[3]["accuracy"] == 0.3


def test_the_page_of_a_federation(tmp_path):
    folder = tmp_path / "run"
    start(folder=folder)
    shown = page.content([folder], series.read_all([folder]))
    assert shown["ended"]
    assert [arm["name"] for arm in shown["arms"]] == [POLICY]
    assert {panel["key"] for panel in shown["panels"]} >= {
        "accuracy", "accuracy-upload", "spoke", "norms", "bytes", "bits"
    }  # fmt: skip
    assert "stand_in" in shown["tables"]
