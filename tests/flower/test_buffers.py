"""Arrays that are no weights: what becomes of BatchNorm's means and variances."""

import federation
import numpy as np
import pytest
from federation import LocalGrid, Spy, app_of, bad, numpy, record
from flwr.app import Array
from flwr.serverapp import strategy as flower

from taciturn.federation import client
from taciturn.federation.layout import Layout, buffers_of
from taciturn.flower import Taciturn

NODES, CHANNELS, OUTPUTS, ROUNDS, BATCHES = 8, 64, 200, 8, 5
NAMES = MEAN, VAR, COUNT = "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"


def start():
    """What `state_dict()` has of a BatchNorm of the input and a linear layer."""
    return record(**{
        MEAN: np.zeros(CHANNELS, "f4"), VAR: np.ones(CHANNELS, "f4"),
        COUNT: np.array(0), "fc.weight": np.zeros((OUTPUTS, CHANNELS), "f4"),
        "scale": np.array(1, "f4"),
    })  # fmt: skip


def normalising(mods=None):
    """An app whose client k has inputs with a mean and variance of its own in every channel."""
    draws = np.random.default_rng(0)
    means = draws.standard_normal((NODES, CHANNELS)).astype("f4")
    variances = np.exp(draws.uniform(-9, 0, (NODES, CHANNELS))).astype("f4")
    wanted = draws.standard_normal((NODES, OUTPUTS, CHANNELS)).astype("f4")

    def step(k, arrays):
        mean, var = arrays[MEAN], arrays[VAR]
        for _ in range(BATCHES):
            mean = np.float32(0.9) * mean + np.float32(0.1) * means[k]
            var = np.float32(0.9) * var + np.float32(0.1) * variances[k]
        weight = arrays["fc.weight"] + np.float32(0.5) * (wanted[k] - arrays["fc.weight"])
        trained = {MEAN: mean, VAR: var, COUNT: arrays[COUNT] + BATCHES}
        return arrays | trained | {"fc.weight": weight}, {"num-examples": 10 * (k + 1)}

    return app_of(step, mods)


def run(inner, policy=None, rounds=ROUNDS, tamper=None, **options):
    options |= {"grid": LocalGrid(normalising(), NODES, tamper=tamper)}
    strategy, result, _ = federation.run(policy, rounds, inner, start=start(), **options)
    return strategy, numpy(result.arrays)


@pytest.fixture(scope="module")
def plain():
    """What Flower's own FedAvg makes of the same clients."""
    grid = LocalGrid(normalising(mods=[]), NODES)
    result = flower.FedAvg(fraction_evaluate=0.0).start(grid, start(), num_rounds=ROUNDS)
    return numpy(result.arrays)


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam, Spy])
@pytest.mark.parametrize("policy", [None, "budget+down=eden:1", "optimal:0.5+ignore"])
def test_means_and_variances_are_those_of_plain_flower(policy, inner, plain, monkeypatch):
    """Not those of a codec, of an optimiser's step, or of what stands in for the silent."""
    monkeypatch.setattr(client, "_uniform", np.random.default_rng(0).random)
    strategy, model = run(inner, policy)
    assert [row["rejected"] for row in strategy.history] == [0] * ROUNDS
    np.testing.assert_allclose(model[MEAN], plain[MEAN], atol=1e-6)
    np.testing.assert_allclose(model[VAR], plain[VAR], rtol=1e-5)
    assert model[COUNT] == ROUNDS * BATCHES
    form = {name: (a.shape, a.dtype) for name, a in numpy(start()).items()}
    assert {name: (a.shape, a.dtype) for name, a in model.items()} == form
    assert np.abs(model["fc.weight"] - plain["fc.weight"]).max() > 1e-3  # or nothing was tested


def test_arrays_that_travel_whole_are_named_and_counted(caplog):
    strategy, _ = run(flower.FedAvg, rounds=1)
    numbers = sum(start()[name].numpy().nbytes for name in NAMES)
    assert (
        f"3 of 5 arrays always travel whole, {numbers:,} bytes in every reply: {MEAN}, {VAR}"
        in (caplog.text)
    )
    whole = sum(len(start()[name].data) for name in NAMES)
    row = strategy.history[0]
    assert row["bytes_always"] == NODES * whole < row["bytes_up"]


def saying(name, value):
    """A node that says this number in the whole array."""
    return bad(lambda content: content["arrays"].update({name: Array(np.full(CHANNELS, value))}))


@pytest.mark.parametrize("compares", [False, True])
def test_a_variance_below_0_counts_as_0(compares):
    """Noise for privacy makes such ones, too: the reply counts."""
    found = []
    for value in (0.0, -1e6):
        strategy, model = run(Spy, "full", 1, saying(VAR, value), compares=compares)
        assert strategy.history[0]["spoke"] == NODES
        found.append(model[VAR])
    np.testing.assert_array_equal(*found)


def test_a_strategy_that_compares_replies_does_so_with_buffers():
    _, model = run(flower.FedMedian, "full", 1, saying(MEAN, 1e6))
    assert np.abs(model[MEAN]).max() < 10


one, weight = np.ones(3, "f4"), np.zeros((3, 2), "f4")


@pytest.mark.parametrize(
    ("own", "found"), [("norm*", ["norm.a", "norm.b"]), (["x", "*.b"], ["norm.b"]), ((), [])]
)
def test_buffers_of_other_names_are_those_that_are_named(own, found):
    strategy = Taciturn(flower.FedAdam(), buffers=own)
    layout = strategy.begin({"norm.a": one, "norm.b": one, "fc": weight})
    assert [layer.name for layer in layout.rest] == found == sorted(layout.averaged)


def listed(*arrays):
    return {str(i): np.asarray(array) for i, array in enumerate(arrays)}


FOUND = {  # arrays, their buffers, and those of these that are variances
    "flax": (["params/bn/scale", "batch_stats/bn/mean", "batch_stats/bn/var"],
             {"batch_stats/bn/mean", "batch_stats/bn/var"}, {"batch_stats/bn/var"}),
    "key paths": (["['batch_stats']['mean']", "['batch_stats']['var']", "['params']['var']"],
                  {"['batch_stats']['mean']", "['batch_stats']['var']"},
                  {"['batch_stats']['var']"}),
    "keras": (["bn/gamma", "bn/moving_mean", "bn/moving_variance"],
              {"bn/moving_mean", "bn/moving_variance"}, {"bn/moving_variance"}),
    "a list": (listed(weight, one, one, 0 * one, one, np.array(7), weight), {"3", "4"}, {"4"}),
    "a list with a layer norm and a step": (listed(one, 0 * one, np.array(7)), set(), set()),
    "a list with a counter for each channel": (listed(one, one, np.arange(3)), set(), set()),
    "weights alone": (["var", "mean", "running"], set(), set()),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOUND)
def test_buffers_are_found_by_names_and_by_counters(kind):
    arrays, expected, variances = FOUND[kind]
    arrays = dict.fromkeys(arrays, one) if isinstance(arrays, list) else arrays
    layout = Layout.of(arrays, (), buffers_of(arrays))
    assert {name for name, _, dtype in layout.rest if dtype.kind == "f"} == expected
    assert layout.variances == variances
