"""The mod and the wrapper in one process, round for round against the plain loop."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

import flwr.server.strategy as legacy
from federation import (
    EXAMPLES,
    NODES,
    SIZE,
    LocalGrid,
    Spy,
    config,
    flat,
    model,
    pulled,
    record,
    run,
    targets,
)
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import strategy as flower

from taciturn import TaciturnError
from taciturn.core import client, server, tally
from taciturn.core.policy import parse
from taciturn.flower import Taciturn, speak


def plain_loop(policy, wanted, rounds):
    """The weights after rounds of the core, for clients as in `pulled`, and how many spoke."""
    policy = parse(policy)
    state, spoke = server.init(policy, np.zeros(wanted.shape[1], np.float32)), []
    for _ in range(rounds):
        config = server.open(policy, state.memory, len(wanted))
        heard = tally.start(state.weights)
        for target, n in zip(wanted, EXAMPLES, strict=True):
            trained = state.weights + np.float32(0.5) * (target - state.weights)
            said = client.respond(policy.rule, state.weights, trained, n, config.context, 0.0)
            heard = tally.add(heard, said, config)
        state, info = server.close(policy, state, heard)
        spoke.append(int(info.spoke))
    return state.weights, spoke


POLICIES = ["full", "adaptive,k=0+ou", "adaptive,k=0+ou,cap=true", "adaptive,k=0+zero",
            "adaptive,k=-0.5+last", "adaptive,k=0+ignore", "fixed:1.0+ou",
            "adaptive,k=0+ou,mode=paper"]  # fmt: skip


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_model_is_that_of_the_plain_loop(policy, inner):
    weights, spoke = plain_loop(policy, targets(), 6)
    # The loop has no limits: `test_limits.py` is about those.
    strategy, result, _ = run(policy, 6, inner, norm_limit=None)
    np.testing.assert_allclose(flat(result.arrays), weights, atol=1e-6)
    assert [row["spoke"] for row in strategy.history] == spoke
    assert policy == "full" or min(spoke) < NODES  # or nothing was tested
    if inner is Spy:  # one of somebody's own must see complete replies
        counted = parse(policy).stand_in.counts and spoke[-1] < NODES
        seen = [reply.content for reply in strategy.inner.seen]
        assert len(seen) == spoke[-1] + counted
        assert all(list(content["arrays"]) == ["a", "b"] for content in seen)
        assert all(set(content["metrics"]) == {"num-examples", "train_loss"} for content in seen)
        total = sum(content["metrics"]["num-examples"] for content in seen)
        assert total == sum(EXAMPLES if counted else EXAMPLES[-spoke[-1] :])


def reference_inner(inner, policy, wanted, rounds):
    """What `inner` makes of complete replies in which each silent client has its stand-in."""
    policy, arrays = parse(policy), model(wanted.shape[1])
    memory = server.remember(policy, flat(arrays))
    for t in range(1, rounds + 1):
        messages = list(inner.configure_train(t, arrays, config(), LocalGrid(None, len(wanted))))
        messages.sort(key=lambda message: message.metadata.dst_node_id)
        weights = flat(arrays).astype(np.float32)
        opened = server.open(policy, memory, len(wanted))
        heard, replies = tally.start(weights), []
        stand_in = policy.stand_in.predict(memory.stand_in)
        for k, message in enumerate(messages):
            trained = weights + np.float32(0.5) * (wanted[k] - weights)
            said = client.respond(policy.rule, weights, trained, EXAMPLES[k], opened.context, 0.0)
            heard = tally.add(heard, said, opened)
            complete = (weights + stand_in if said.update is None else trained).astype("f4")
            size = np.prod(arrays["a"].shape)
            pieces = record(a=complete[:size].reshape(arrays["a"].shape), b=complete[size:])
            metrics = MetricRecord({"num-examples": EXAMPLES[k], "train_loss": k + 1.0})
            content = RecordDict({"arrays": pieces, "metrics": metrics})
            replies.append(Message(content, reply_to=message))
        _, memory, _ = server.learn(policy, memory, heard)
        arrays, metrics = inner.aggregate_train(t, replies)
        arrays = record(**{name: array.numpy().astype("f4") for name, array in arrays.items()})
    return flat(arrays), metrics


MEAN_BASED = {
    "FedAvg": lambda: flower.FedAvg(fraction_evaluate=0.0),
    "FedProx": lambda: flower.FedProx(fraction_evaluate=0.0, proximal_mu=0.1),
    "FedAvgM": lambda: flower.FedAvgM(
        fraction_evaluate=0.0, server_learning_rate=0.8, server_momentum=0.5
    ),
    "FedAdam": lambda: flower.FedAdam(fraction_evaluate=0.0),
    "FedYogi": lambda: flower.FedYogi(fraction_evaluate=0.0),
    "FedAdagrad": lambda: flower.FedAdagrad(fraction_evaluate=0.0),
    "QFedAvg": lambda: flower.QFedAvg(0.5, fraction_evaluate=0.0),
}


@pytest.mark.parametrize("name", MEAN_BASED)
def test_mean_based_strategies_see_every_silent_client_through_its_stand_in(name, monkeypatch):
    monkeypatch.setattr("gc.collect", lambda: 0)  # QFedAvg asks for it at every reply
    expected, metrics = reference_inner(MEAN_BASED[name](), "adaptive,k=0+ou", targets(), 6)
    strategy, result, _ = run("adaptive,k=0+ou", 6, MEAN_BASED[name]())
    assert 0 < strategy.history[-1]["silent"] < NODES
    np.testing.assert_allclose(flat(result.arrays), expected, atol=2e-6)
    found = result.train_metrics_clientapp[6]
    assert found["train_loss"] == pytest.approx(metrics["train_loss"])
    assert {array.dtype for array in result.arrays.values()} == {"float32"}


class Recorded:
    """Keeps what a strategy was given."""

    def aggregate_train(self, server_round, replies):
        self.seen = list(replies)
        return super().aggregate_train(server_round, self.seen)


COMPARING = {
    "Krum": (flower.Krum, {}),
    "MultiKrum": (flower.MultiKrum, {"num_nodes_to_select": 2}),
    "Bulyan": (flower.Bulyan, {}),
    "FedMedian": (flower.FedMedian, {}),
    "FedTrimmedAvg": (flower.FedTrimmedAvg, {"beta": 0.4}),
}


@pytest.mark.parametrize("name", COMPARING)
def test_strategies_that_compare_replies_never_see_a_stand_in(name):
    kind, options = COMPARING[name]
    inner = type(name, (Recorded, kind), {})(fraction_evaluate=0.0, **options)
    # Two of five are silent, and would be two equal replies.
    norms = np.sort(np.linalg.norm(targets(), axis=1))
    strategy, result, _ = run(f"fixed:{0.5 * norms[1:3].mean()}+ou", 1, inner)
    assert strategy.history[0]["silent"] == 2
    assert len(inner.seen) == 3
    plain, grid = kind(fraction_evaluate=0.0, **options), LocalGrid(pulled(targets(), mods=[]), 5)
    messages = list(plain.configure_train(1, model(SIZE), config(), grid))
    speaking = [m for m in messages if np.linalg.norm(targets()[m.metadata.dst_node_id]) > norms[1]]
    arrays, _ = plain.aggregate_train(1, grid.send_and_receive(speaking))
    np.testing.assert_allclose(flat(result.arrays), flat(arrays), atol=1e-6)


def test_when_nobody_speaks_to_a_strategy_that_compares_the_model_stays():
    _, result, _ = run("fixed:1e9+ou", 2, flower.FedMedian)
    assert not flat(result.arrays).any()


def test_a_strategy_of_ones_own_can_be_said_to_compare():
    strategy, _, _ = run("adaptive,k=0+ou", 8, Spy, compares=True)
    assert len(strategy.inner.seen) < NODES - 1


@pytest.mark.parametrize("side", ["ServerSide", "ClientSide"])
@pytest.mark.parametrize("clipping", ["Fixed", "Adaptive"])
def test_central_privacy_is_refused_inside_and_outside(clipping, side):
    wrap = getattr(flower, name := f"DifferentialPrivacy{side}{clipping}Clipping")
    arguments = (0.1, 1.0, NODES) if clipping == "Fixed" else (0.1, NODES)
    sentence = f"{name} cannot be combined with Taciturn: its noise"
    with pytest.raises(TaciturnError, match=sentence):
        Taciturn(wrap(flower.FedAvg(), *arguments))
    outside = wrap(Taciturn(flower.FedAvg(fraction_evaluate=0.0)), *arguments)
    grid = LocalGrid(pulled(targets()), NODES)
    with pytest.raises(TaciturnError, match=sentence):
        outside.start(grid, model(SIZE), num_rounds=1)
    assert grid.received == []


class Starting(flower.FedAvg):
    def start(self, *arguments, **options):
        return super().start(*arguments, **options)


@pytest.mark.parametrize(
    ("inner", "options", "message"),
    [("FedAvg", {}, "must be a Flower Strategy, got 'FedAvg'"),
     (legacy.FedAvg(), {}, r"`from flwr.serverapp.strategy import FedAvg` is"),
     (Starting(), {}, "Starting has a `start` of its own"),
     (flower.FedXgbBagging(), {}, "no mean to stand in for"),
     (flower.FedXgbCyclic(), {}, "no mean to stand in for"),
     (None, {"absent": "drop"}, "`absent` must be ignore or stand-in, got 'drop'"),
     (None, {"min_clients": 0}, "`min_clients` must be at least 1, got 0"),
     (None, {"policy": "adaptve"}, "Did you mean `adaptive`"),
     (None, {"policy": "adaptive+own"}, "`own` needs an update of every node"),
     (None, {"weight_limit": 0.5}, "`weight_limit`"),
     (None, {"norm_limit": "much"}, "`norm_limit`"),
     (None, {"kept_messages": -1}, "`kept_messages` must be"),
     (None, {"track": "mlflw"}, "no tracker called `mlflw`")],
)  # fmt: skip
def test_what_cannot_be_is_refused(inner, options, message):
    with pytest.raises(TaciturnError, match=message):
        Taciturn(inner or flower.FedAvg(), **options)


def test_a_model_without_weights_is_refused():
    with pytest.raises(TaciturnError, match="floating-point arrays that are not excluded"):
        run(exclude="*")


def local_dp(clip, noise):
    return LocalDpMod(clipping_norm=clip, sensitivity=noise, epsilon=1.0, delta=1e-5)


def test_privacy_on_the_client_works_when_the_mod_is_first():
    strategy, _, _ = run("full", 2, mods=[speak(), local_dp(0.5, 1e-4)])
    assert [row["spoke"] for row in strategy.history] == [NODES, NODES]
    assert strategy.history[0]["norm_mean"] == pytest.approx(0.5, rel=0.01)


def test_a_mod_that_changes_the_weights_after_the_norm_is_noticed(caplog):
    strategy, result, _ = run("full", mods=[local_dp(0.1, 0.0), speak()])
    assert strategy.history[0]["rejected"] == NODES
    assert not flat(result.arrays).any()
    assert "must be the first of its mods" in caplog.text
