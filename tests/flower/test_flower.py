"""The mod and the wrapper in one process, round for round against the plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

import flwr.server.strategy as legacy
from federation import LocalGrid, config, flat, model, pulled, record
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import strategy as flower

from taciturn import TaciturnError
from taciturn.core import client, server, tally
from taciturn.core.policy import parse
from taciturn.flower import Taciturn, speak

NODES, SIZE = 5, 10
EXAMPLES = [10, 20, 30, 40, 50]


def targets(seed=0, nodes=NODES, size=SIZE):
    draws = np.random.default_rng(seed)
    spread = np.linspace(0.2, 2.0, nodes)[:, None]
    return (1 + spread * draws.standard_normal((nodes, size))).astype(np.float32)


def plain_loop(policy, wanted, rounds, examples=EXAMPLES, optimizer=None, rate=0.5):
    """The round of the core, for clients as in `pulled`."""
    policy = parse(policy)
    state = server.init(policy, np.zeros(wanted.shape[1], np.float32), optimizer)
    spoke = []
    for _ in range(rounds):
        opening = server.open(policy, state.memory, len(wanted))
        heard = tally.start(state.weights)
        for target, n in zip(wanted, examples, strict=True):
            trained = state.weights + np.float32(rate) * (target - state.weights)
            heard = tally.add(
                heard,
                client.respond(policy.rule, state.weights, trained, n, opening.context, 0.0),
                opening,
            )
        state, info = server.close(policy, state, heard, optimizer)
        spoke.append(int(info.spoke))
    return state.weights, spoke


def federate(inner, policy, wanted, rounds=5, examples=EXAMPLES, grid=None, mods=None, **options):
    strategy = Taciturn(inner, policy, **options)
    grid = grid or LocalGrid(pulled(wanted, examples, mods=mods), len(wanted))
    result = strategy.start(grid, model(wanted.shape[1]), num_rounds=rounds)
    return strategy, result


@pytest.mark.parametrize(
    "policy",
    ["full", "adaptive+ou", "adaptive,k=0+ou,cap=true", "adaptive,k=0+zero", "adaptive,k=-0.5+last",
     "adaptive,k=0+ignore", "fixed:1.0+ou", "adaptive,k=0+ou,mode=paper"],
)  # fmt: skip
def test_the_model_is_that_of_the_plain_loop(policy):
    wanted = targets()
    weights, spoke = plain_loop(policy, wanted, 6)
    # The loop has no limits: `test_limits.py` is about those.
    inner = flower.FedAvg(fraction_evaluate=0.0)
    strategy, result = federate(inner, policy, wanted, 6, norm_limit=None)
    np.testing.assert_allclose(flat(result.arrays), weights, atol=1e-6)
    assert [row["spoke"] for row in strategy.history] == spoke
    if policy != "full":
        assert min(spoke) < NODES  # or nothing was tested


class Spy(flower.FedAvg):
    """A strategy of somebody's own that averages: it must see complete replies."""

    def aggregate_train(self, server_round, replies):
        self.seen = list(replies)
        return super().aggregate_train(server_round, self.seen)


@pytest.mark.parametrize("policy", ["full", "adaptive,k=0+ou", "adaptive,k=0+ou,cap=true",
                                    "adaptive,k=0+zero", "adaptive,k=0+ignore"])  # fmt: skip
def test_a_strategy_of_ones_own_gets_complete_replies(policy):
    wanted, inner = targets(), Spy(fraction_evaluate=0.0)
    weights, spoke = plain_loop(policy, wanted, 6)
    strategy, result = federate(inner, policy, wanted, 6, norm_limit=None)
    np.testing.assert_allclose(flat(result.arrays), weights, atol=1e-6)
    assert [row["spoke"] for row in strategy.history] == spoke
    counted = parse(policy).stand_in.counts and spoke[-1] < NODES
    assert len(inner.seen) == spoke[-1] + counted
    for reply in inner.seen:
        assert list(reply.content["arrays"]) == ["a", "b"]
        assert set(reply.content["metrics"]) == {"num-examples", "train_loss"}
    total = sum(reply.content["metrics"]["num-examples"] for reply in inner.seen)
    assert total == (sum(EXAMPLES) if counted or policy == "full" else sum(EXAMPLES[-spoke[-1] :]))


def reference_inner(inner, policy, wanted, rounds):
    """What `inner` makes of complete replies in which each silent client has its stand-in."""
    policy = parse(policy)
    size = wanted.shape[1]
    state = server.init(policy, np.zeros(size, np.float32))
    arrays, template = model(size), model(size)
    grid = LocalGrid(None, len(wanted))
    for t in range(1, rounds + 1):
        messages = list(inner.configure_train(t, arrays, config(), grid))
        messages.sort(key=lambda message: message.metadata.dst_node_id)
        weights = flat(arrays).astype(np.float32)
        opening = server.open(policy, state.memory, len(wanted))
        heard, replies = tally.start(weights), []
        stand_in = policy.stand_in.predict(state.memory.stand_in)
        for k, message in enumerate(messages):
            trained = weights + np.float32(0.5) * (wanted[k] - weights)
            said = client.respond(policy.rule, weights, trained, EXAMPLES[k], opening.context, 0.0)
            heard = tally.add(heard, said, opening)
            complete = trained if said.update is not None else weights + stand_in
            pieces, at = {}, 0
            for name, array in template.items():
                count = math.prod(array.shape)
                pieces[name] = complete[at : at + count].astype("f4").reshape(array.shape)
                at += count
            metrics = MetricRecord({"num-examples": EXAMPLES[k], "train_loss": float(k) + 1.0})
            content = RecordDict({"arrays": record(**pieces), "metrics": metrics})
            replies.append(Message(content, reply_to=message))
        _, memory, _ = server.learn(policy, state.memory, heard)
        state = state._replace(memory=memory)
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
    wanted, policy = targets(), "adaptive,k=0+ou"
    expected, metrics = reference_inner(MEAN_BASED[name](), policy, wanted, 6)
    strategy, result = federate(MEAN_BASED[name](), policy, wanted, 6)
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
    wanted = targets()
    # Two of five are silent, and would be two equal replies.
    norms = np.sort(np.linalg.norm(wanted, axis=1))
    strategy, result = federate(inner, f"fixed:{0.5 * norms[1:3].mean()}+ou", wanted, 1)
    assert strategy.history[0]["silent"] == 2
    assert len(inner.seen) == 3
    plain = kind(fraction_evaluate=0.0, **options)
    grid = LocalGrid(pulled(wanted, EXAMPLES, mods=[]), NODES)
    messages = list(plain.configure_train(1, model(SIZE), config(), grid))
    speaking = [m for m in messages if np.linalg.norm(wanted[m.metadata.dst_node_id]) > norms[1]]
    arrays, _ = plain.aggregate_train(1, grid.send_and_receive(speaking))
    np.testing.assert_allclose(flat(result.arrays), flat(arrays), atol=1e-6)


def test_when_nobody_speaks_to_a_strategy_that_compares_the_model_stays():
    _, result = federate(flower.FedMedian(fraction_evaluate=0.0), "fixed:1e9+ou", targets(), 2)
    assert not flat(result.arrays).any()


def test_a_strategy_of_ones_own_can_be_said_to_compare():
    inner = Spy(fraction_evaluate=0.0)
    federate(inner, "adaptive,k=0+ou", targets(), 8, compares=True)
    assert len(inner.seen) < NODES - 1


CENTRAL = {
    "DifferentialPrivacyServerSideFixedClipping": (0.1, 1.0, NODES),
    "DifferentialPrivacyClientSideFixedClipping": (0.1, 1.0, NODES),
    "DifferentialPrivacyServerSideAdaptiveClipping": (0.1, NODES),
    "DifferentialPrivacyClientSideAdaptiveClipping": (0.1, NODES),
}


@pytest.mark.parametrize("name", CENTRAL)
def test_central_privacy_is_refused_inside_and_outside(name):
    wrap = getattr(flower, name)
    sentence = f"{name} cannot be combined with Taciturn: its noise"
    with pytest.raises(TaciturnError, match=sentence):
        Taciturn(wrap(flower.FedAvg(), *CENTRAL[name]))
    outside = wrap(Taciturn(flower.FedAvg(fraction_evaluate=0.0)), *CENTRAL[name])
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
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
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
    with pytest.raises(TaciturnError, match="floating-point arrays that are not excluded"):
        Taciturn(flower.FedAvg(), exclude="*").start(grid, model(SIZE), num_rounds=1)


def local_dp(clip, noise):
    return LocalDpMod(clipping_norm=clip, sensitivity=noise, epsilon=1.0, delta=1e-5)


def test_privacy_on_the_client_works_when_the_mod_is_first():
    strategy, _ = federate(
        flower.FedAvg(fraction_evaluate=0.0), "full", targets(), 2,
        mods=[speak(), local_dp(0.5, 1e-4)],
    )  # fmt: skip
    assert [row["spoke"] for row in strategy.history] == [NODES, NODES]
    assert strategy.history[0]["norm_mean"] == pytest.approx(0.5, rel=0.01)


def test_a_mod_that_changes_the_weights_after_the_norm_is_noticed(caplog):
    strategy, result = federate(
        flower.FedAvg(fraction_evaluate=0.0), "full", targets(), 1,
        mods=[local_dp(0.1, 0.0), speak()],
    )  # fmt: skip
    assert strategy.history[0]["rejected"] == NODES
    assert not flat(result.arrays).any()
    assert "must be the first of its mods" in caplog.text
