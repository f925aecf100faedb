"""The way down in simulations: clients train from the public model, and download what they lack."""

import numpy as np
import pytest
from small_tasks import assert_identical, distance, few

import taciturn
from taciturn.core import downlink, tally
from taciturn.core.policy import parse
from taciturn.sim import draws

SIZE = 105  # weights of the model of `few`


def test_off_changes_nothing_not_a_bit():
    """An arm without a codec for the way down is the same beside arms that have one."""
    text = "adaptive,k=0+ou+eden:0.5"
    settings = {"cohort": 4, "rounds": 5, "seeds": 2, "lanes": 1, "devices": 1}
    without = taciturn.compare(few(), {"off": text}, **settings)
    named = {"off": f"{text}+down=float32"}
    assert_identical(taciturn.compare(few(), named, **settings), without)
    beside = taciturn.compare(few(), {"off": text, "down": f"{text}+down=eden:1"}, **settings)
    assert distance(beside.pop("down").weights, without["off"].weights) > 1e-4
    assert_identical(beside, without)
    np.testing.assert_array_equal(beside["off"].bytes_down, np.full((2, 5), 4 * 4 * SIZE))


def counted(text, rounds, seed, kept, dropout=0.0):
    """Bytes down by hand: what every client has is known, and the messages it lacks are counted."""
    codec, have, found = parse(text).down, [0] * 6, []
    for t in range(rounds):
        keys = draws.round_keys(draws.run_keys(seed), t)
        total = 0
        there = draws.answers(keys, 3, dropout)
        for slot, client in enumerate(draws.cohort(keys, 6, 3).tolist()):
            lacks, whole = t - have[client], 4 * SIZE
            far = kept is not None and lacks > kept
            total += whole if far else min(lacks * codec.nbytes(SIZE), whole)
            if there[slot]:
                have[client] = t
        found.append(total)
    return found


@pytest.mark.parametrize(("kept", "dropout"), [(None, 0.8), (0, 0.0), (100, 0.8), (2, 0.4)])
def test_clients_download_what_they_lack(kept, dropout):
    text = "full+down=top_k:0.1"  # seven messages are shorter than the model, eight are not
    assert downlink.most_kept(parse(text).down, SIZE) == 7
    history = taciturn.simulate(
        few(), text, rounds=14, cohort=3, seeds=(5, 6), kept_messages=kept, dropout=dropout,
        plain=True,
    )  # fmt: skip
    for row, seed in zip(history.bytes_down, (5, 6), strict=True):
        assert row.tolist() == counted(text, 14, seed, kept, dropout)
    assert history.bytes_down[0, 0] == 0  # everyone knows the seed
    told = 0 if kept == 0 else parse(text).down.nbytes(SIZE)
    expected = [0, *[3 * (told or 4 * SIZE)] * 13]
    np.testing.assert_array_equal(history.bytes_down_silos, [expected, expected])
    np.testing.assert_array_equal(history.overhead_down, np.full((2, 14), 3 * tally.OVERHEAD))
    full = 14 * 3 * (4 * SIZE + tally.OVERHEAD)
    summary = history.summary()
    down = (history.bytes_down + history.overhead_down).sum(1).mean()
    assert summary["download_share"] == pytest.approx(100 * down / full)
    assert summary["traffic_bytes"] == pytest.approx(history.bytes_both.sum(1).mean())


def test_what_is_tested_is_the_public_model():
    """And it is what the history has as weights."""
    task = few()
    history = taciturn.simulate(task, "full+down=sparse_ternary:0.05", rounds=3, cohort=4)
    scores = taciturn.evaluate(task, history.weights[0])
    assert history.accuracy[0, -1] == pytest.approx(scores["accuracy"])
    assert history.loss[0, -1] == pytest.approx(scores["loss"], rel=1e-5)
    # One message moves ⌈0.05 · 105⌉ weights: after three of them, 18 differ from the first.
    first = taciturn.simulate(task, "full+down=sparse_ternary:0.05", rounds=1, cohort=4, lr=0.0)
    assert 6 <= (history.weights != first.weights).sum() <= 18
