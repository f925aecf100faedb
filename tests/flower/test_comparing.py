"""Strategies that compare replies, where fewer speak than they need."""

import numpy as np
import pytest
from federation import flat, model, run
from flwr.app import MetricRecord
from flwr.serverapp import strategy as flower

from taciturn.flower import compatibility

ASKED, SIZE = 8, 6
ALONE = {"fraction_evaluate": 0.0}


@pytest.mark.parametrize(
    ("inner", "replies"),
    [
        (flower.Bulyan(), 3),
        (flower.Bulyan(num_malicious_nodes=2), 11),
        (flower.Krum(num_malicious_nodes=1), 5),
        (flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=5), 6),
        (flower.MultiKrum(num_nodes_to_select=5), 3),
        (flower.FedTrimmedAvg(beta=0.3), 4),
        (flower.FedTrimmedAvg(beta=1 / 49), 50),
        (flower.FedTrimmedAvg(beta=0.0), 1),
        (flower.FedMedian(), 1),
    ],
)
def test_what_a_strategy_needs(inner, replies):
    assert compatibility.needs(inner) == replies
    if isinstance(inner, flower.FedTrimmedAvg) and inner.beta:
        assert int(inner.beta * replies) == 1
        assert int(inner.beta * (replies - 1)) == 0


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_the_trimmed_mean_trims_as_many_as_the_strategy_bears(bad):
    for replies in range(2, 40):
        trimmed = compatibility.trimmed_mean(flower.Bulyan(num_malicious_nodes=bad), replies)
        assert int(trimmed.beta * replies) == min(max(bad, 1), (replies - 1) // 2)


def few(inner, speakers, policy="fixed:{}+ou"):
    """The first step where the longest so many updates are spoken, the very longest of them bad."""
    wanted = np.random.default_rng(3).standard_normal((ASKED, SIZE)).astype(np.float32)
    wanted *= np.arange(1, ASKED + 1)[:, None] / np.linalg.norm(wanted, axis=1, keepdims=True)
    wanted[-1] *= 1e6
    policy = policy.format((ASKED - speakers + 0.5) / 2)
    strategy, result, _ = run(policy, 1, inner, wanted, examples=(20,) * ASKED)
    assert strategy.history[0]["spoke"] == speakers
    spoke = np.where(np.arange(ASKED)[:, None] >= ASKED - speakers, 0.5 * wanted, 0.0)
    return flat(result.arrays), spoke, result.train_metrics_clientapp[1]


@pytest.mark.parametrize(
    ("kind", "options", "speakers", "trimmed"),
    [(flower.Bulyan, {"num_malicious_nodes": 1}, 6, 1),
     (flower.MultiKrum, {"num_malicious_nodes": 1, "num_nodes_to_select": 5}, 5, 1),
     (flower.FedTrimmedAvg, {"beta": 0.2}, 4, 1),
     (flower.Krum, {"num_malicious_nodes": 2}, 6, 2)],
)  # fmt: skip
def test_with_too_few_speakers_a_trimmed_mean_takes_its_place(
    kind, options, speakers, trimmed, caplog
):
    def count(records, weighted_by):  # a function of the user's sees the silent, too, and each once
        return MetricRecord({"clients": len(records)})

    inner = kind(train_metrics_aggr_fn=count, **ALONE, **options)
    moved, spoke, metrics = few(inner, speakers)
    assert (metrics["clients"], inner.train_metrics_aggr_fn) == (ASKED, count)
    expected = np.sort(spoke, axis=0)[trimmed : ASKED - trimmed].mean(0)
    np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)
    needed = compatibility.needs(kind(**options))
    assert f"{speakers} spoke in round 1, and {kind.__name__} needs {needed} replies" in caplog.text
    assert f"Replies that {kind.__name__} needs: {needed}" in caplog.text


def test_where_nobody_may_be_silent_a_strategy_does_as_in_plain_flower(caplog):
    moved, _, _ = few(flower.Bulyan(num_malicious_nodes=3, **ALONE), ASKED, "full")
    np.testing.assert_array_equal(moved, flat(model(SIZE)))  # it skips the round
    assert "takes its place" not in caplog.text
