"""How far one node can move the mean, the thresholds and the others' silence."""

import itertools
import math
import sys
from functools import partial
from pathlib import Path

import federation as fed
import numpy as np
import pytest
from flwr.serverapp import strategy as flower

from taciturn.federation.replies import Limits, Reply
from taciturn.flower import Taciturn, speak

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import attacks


def silent(examples, norm=0.0):
    """Node `BAD` says nothing, and how much it weighs."""

    def tamper(content):
        content.pop("arrays", None)
        fed.restate(content, b"", norm=norm)
        content["metrics"]["num-examples"] = examples

    return fed.bad(tamper)


def lengths(updates):
    return np.linalg.norm(updates, axis=1)


# What a node weighs.


@pytest.mark.parametrize("inner", [flower.FedAvg, fed.Spy])
@pytest.mark.parametrize(("limit", "most"), [(10.0, 300.0), (None, 1e9)])
def test_nobody_weighs_more_than_so_many_times_the_median(inner, limit, most):
    much = fed.bad(fed.claim("num-examples", 1e9))
    strategy, result, _ = fed.run("full", 1, inner, tamper=much, weight_limit=limit)
    expected = fed.mean_of(fed.targets(), [10, 20, 30, most, 50])
    np.testing.assert_allclose(fed.flat(result.arrays), expected, rtol=1e-5)
    if inner is fed.Spy:
        found = strategy.inner.seen[fed.BAD].content["metrics"]["num-examples"]
        assert found == pytest.approx(most)


def reply(spoke: bool, chance: float = 1.0, examples: float = 100.0) -> Reply:
    code = b"code" if spoke else b""
    return Reply("", {}, examples=examples, code=code, probability=chance)


@pytest.mark.parametrize(("speakers", "chance"), [(6, 0.6), (1, 0.05)])
def test_honest_nodes_weigh_what_they_have_however_likely_they_were_to_speak(speakers, chance):
    found = [reply(k < speakers, chance if k < speakers else 0.05) for k in range(10)]
    Limits(weight=10.0).bound_weights(found, "num-examples")
    expected = [100 / chance] * speakers + [100] * (10 - speakers)
    assert [one.weight for one in found] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("alone", "speakers", "chance", "odd", "weight"),
    [(False, 9, 0.5, (True, 1e-6), 10 * 200),  # a chance that is no honest one buys no weight
     (False, 9, 0.5, (False, 0.5, 1e6), 2 * 100), (True, 9, 1.0, (True, 1.0, 1e9), 10 * 100),
     # Where the mean is over speakers alone, the fewer speak the less each may weigh.
     (True, 3, 1.0, (True, 1.0, 1e9), 4 * 100), (False, 3, 1.0, (True, 1.0, 1e9), 10 * 100)],
)  # fmt: skip
def test_who_claims_much_weighs_no_more_than_the_limit(alone, speakers, chance, odd, weight):
    found = [*(reply(k < speakers, chance) for k in range(9)), reply(*odd)]
    Limits(weight=10.0, alone=alone).bound_weights(found, "num-examples")
    assert found[-1].weight == pytest.approx(weight)


# How long its update is.


def move(policy, scales, examples=(20,) * fed.NODES, tamper=None, size=10):
    """The first step of a federation, and its nodes' updates, scaled."""
    wanted = fed.targets(size=size) * np.array(scales, np.float32)[:, None]
    _, result, _ = fed.run(policy, wanted=wanted, examples=examples, tamper=tamper)
    return fed.flat(result.arrays), 0.5 * wanted


@pytest.mark.parametrize("inner", [flower.FedAvg, fed.Spy])
@pytest.mark.parametrize("policy", ["adaptive+ou", "adaptive+ou+quantize:8"])
@pytest.mark.parametrize("mods", [[], None])
def test_no_update_counts_as_longer_than_three_of_the_upper_quartile(inner, policy, mods):
    wanted = fed.targets()
    wanted[fed.BAD] *= 1e6
    strategy, result, _ = fed.run(policy, 1, inner, wanted, mods=mods)
    norms = lengths(wanted.astype(float))
    wanted[fed.BAD] *= 3 * np.sort(np.delete(norms, fed.BAD))[3] / norms[fed.BAD]
    expected = fed.mean_of(wanted)
    tolerance = 0.02 if "quantize" in policy else 1e-5
    assert np.linalg.norm(fed.flat(result.arrays) - expected) < tolerance * np.linalg.norm(expected)
    mean = 0.5 * np.average(lengths(wanted), weights=fed.EXAMPLES)
    assert strategy.history[0]["norm_mean"] == pytest.approx(mean, rel=tolerance)


def test_what_a_codec_stretches_does_not_let_others_be_longer():
    def without_mod(message, context, call_next):
        mod = call_next if context.node_id == fed.BAD else partial(speak(), call_next=call_next)
        return mod(message, context)

    wanted = fed.targets(size=300)
    wanted[fed.BAD] *= 1e6
    strategy, _, _ = fed.run("adaptive+ou+eden:0.3", wanted=wanted, mods=[without_mod])
    norms = 0.5 * lengths(wanted)
    norms[fed.BAD] = 3 * np.sort(norms)[3]
    mean = np.average(norms, weights=fed.EXAMPLES)
    assert strategy.history[0]["norm_mean"] == pytest.approx(mean, rel=0.15)


def test_where_all_speak_and_where_replies_are_compared_lengths_are_as_they_are():
    assert math.isinf(Taciturn(flower.FedAvg(), "full").limits.norm)
    assert math.isinf(Taciturn(flower.FedMedian()).limits.norm)
    assert Taciturn(flower.FedAvg()).limits.norm == 3.0


@pytest.mark.parametrize(
    ("alone", "said", "silent", "longest"),
    [(False, [1, 2, 3, 4, 1e6], [], 3 * 4), (False, [1e6], [1, 2, 3, 4, 5, 6], 3 * 6),
     # The fewer speak, the shorter each must be.
     (True, [1, 2, 3, 4, 1e6], [], 3 * 4), (True, [1, 2, 3, 1e6], [0.5], 2.4 * 3),
     (True, [2, 3, 1e6], [0.5, 1], 2 * 3), (True, [1e6], [1, 2, 3, 4], 2 * 4),
     # Nodes with nothing to say measure nobody; where nobody speaks, the silent do each other.
     (False, [0, 0, 5, 0, 0], [], 3 * 5), (False, [5], [0, 0, 0, 1], 3 * 1),
     (False, [], [1, 2, 0, 1e17], 3 * 2), (False, [], [0, 0], np.inf), (False, [], [], np.inf)],
)  # fmt: skip
def test_an_update_is_measured_by_the_others(alone, said, silent, longest):
    speakers = [Reply("", norm=norm) for norm in said]
    assert Limits(norm=3.0, alone=alone).longest(speakers, silent) == pytest.approx(longest)


@pytest.mark.parametrize("stand_in", ["ignore", "zero"])
def test_who_speaks_alone_is_measured_by_the_silent(stand_in):
    scales = [1, 1, 1, 1e6, 1]
    _, updates = move("full", scales)
    longest, own = np.sort(lengths(updates))[-2:]
    moved, _ = move(f"fixed:{(longest + own) / 2}+{stand_in}", scales)
    # With `zero`, the silent four fifths of the mean stay where they are.
    expected = 2 * longest if stand_in == "ignore" else 3 * longest / fed.NODES
    assert np.linalg.norm(moved) == pytest.approx(expected, rel=1e-4)
    assert moved @ updates[fed.BAD] == pytest.approx(expected * own, rel=1e-4)


@pytest.mark.parametrize("codec", ["eden:1", "quantize:4"])
def test_who_reports_less_than_is_decoded_is_measured_by_that(codec):
    """A norm that the codec may just have stretched so much passes, and shortens nothing."""
    scales, factor = [1, 1, 1, 8, 1], 0.55 if codec.startswith("quantize") else 0.4
    reported = 0.5 * 8 * lengths(fed.targets(size=300))[fed.BAD]
    lie = fed.bad(lambda content: fed.restate(content, norm=factor * reported))
    for policy in (f"fixed:0+ignore+{codec}", f"random:1+zero+{codec}"):
        honest, _ = move(policy, scales, size=300)
        moved, _ = move(policy, scales, tamper=lie, size=300)
        free, _ = move(f"full+{codec}", scales, size=300)
        steps = [float(np.linalg.norm(step)) for step in (honest, moved, free)]
        assert steps[1] <= 1.2 * steps[0]
        assert steps[2] > 1.5 * steps[0]


def test_what_was_encoded_is_measured_and_not_what_a_node_says_of_its_update():
    policy, lie = "adaptive+ou+top_k:0.9,feedback=true", fed.bad(lambda c: fed.restate(c, norm=1.0))
    moved, updates = move(policy, [1, 1, 1, 1e6, 1], tamper=lie)
    assert np.linalg.norm(moved) < 3 * np.delete(lengths(updates), fed.BAD).max()


def test_a_sparse_update_is_not_too_long_for_a_codec_that_keeps_it():
    """Such a codec shortens dense updates: decoded, they do not say how long others may be."""
    wanted = fed.targets(size=10_000)
    wanted[fed.BAD] = 0
    wanted[fed.BAD, :10] = 1
    wanted /= lengths(wanted)[:, None]
    grid = fed.LocalGrid(fed.pulled(wanted, [10] * fed.NODES, rate=1.0), fed.NODES)
    _, result, _ = fed.run("random:1+ignore+top_k:0.001", wanted=wanted, grid=grid, seed=1)
    np.testing.assert_allclose(
        fed.flat(result.arrays)[:10], wanted[fed.BAD, :10] / fed.NODES, rtol=1e-2
    )


# What it does to the others' thresholds and bytes.


def test_a_silent_node_that_claims_a_long_update_takes_no_bytes_from_the_others():
    """No threshold bounds what it claims under `budget`, where bytes follow the mean of n·m."""
    typical = [
        float(fed.run("budget:45B,per=client", tamper=silent(30, norm))[0].memory.rule.typical)
        for norm in (1.0, 1e12)
    ]
    assert typical[1] < 3 * typical[0]


@pytest.mark.parametrize(
    "tamper", [silent(1e6, 1e9), *(fed.bad(fed.claim("num-examples", n)) for n in (1e9, 1e-6))]
)
@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedMedian])
def test_one_node_neither_silences_the_others_nor_makes_them_all_speak(inner, tamper):
    grid = fed.LocalGrid(fed.pulled(fed.targets(nodes=10), [20] * 10), 10, tamper=tamper)
    strategy, _, _ = fed.run("adaptive,k=0,robust=true+ou", 12, inner, grid=grid)
    spoke = [row["spoke"] for row in strategy.history[4:]]
    assert min(spoke) >= 3
    assert max(spoke) <= 8


ALL_BELOW = "adaptive,k=-50,robust=true,at_most=3+ou"  # who speaks does so because it must


@pytest.mark.parametrize("forget", [False, True])
def test_nobody_is_silent_for_ever(forget):
    def app(message, _):  # as nodes do that are started again
        return fed.pulled(fed.targets())(message, fed.context(message.metadata.dst_node_id))

    strategy, _, _ = fed.run(ALL_BELOW, 11, grid=fed.LocalGrid(app, fed.NODES) if forget else None)
    assert [row["spoke"] for row in strategy.history] == [5, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0]
    assert strategy.nodes["0"].last_spoke == 10
    assert (strategy.nodes["0"].spoke, strategy.nodes["0"].silent) == (4, 7)
    assert strategy.nodes.rows(11)[0]["rounds_since"] == 1


def test_who_stays_silent_all_the_same_is_rejected_and_missed(caplog):
    strategy, _, _ = fed.run(ALL_BELOW, 11, tamper=silent(30, 0.1))
    assert [row["rejected"] for row in strategy.history] == [0, 0, 0] + [1] * 8
    assert (strategy.nodes[f"{fed.BAD}"].spoke, strategy.nodes[f"{fed.BAD}"].silent) == (0, 3)
    assert "It is silent, and `adaptive` says it must speak now" in caplog.text
    assert (
        f"node {fed.BAD} was asked 11 times, was silent 3 times and has never been" in caplog.text
    )


# A part of `benchmarks/attacks.py`.


def test_every_attack_is_in_one_row_of_the_table():
    assert sorted(itertools.chain(*attacks.FAMILIES.values())) == sorted(attacks.ATTACKS)


@pytest.mark.parametrize(
    ("inner", "name"),
    [*itertools.product(
        ["FedAvg", "FedMedian", "Krum"],
        ["n = 1e9, norm 1e3", "norm 1e6 in round 1, then honest",
         "norm 50 and n = 1e5 once, then silent with norm τ", "silent with n = 1e6"]),
     ("FedAvg", "a code of 32 bytes, four times the norm"),
     ("FedAdam", "buffers of 1e17"), ("FedAdam", "buffers of 1e17 with n = 1e9")],
)  # fmt: skip
def test_the_default_policy_is_as_good_as_everyone_speaking(inner, name):
    make = attacks.STRATEGIES[inner]
    everyone, _ = attacks.measure(make, name, 2)
    ours, share = attacks.measure(lambda: attacks.Taciturn(make(), seed=0), name, 2)
    assert attacks.holds("default", ours, everyone), (ours, everyone)
    assert share >= 0.9  # no honest node is silent
