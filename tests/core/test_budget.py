"""The rule `budget`: what is spent is what was asked for, where it counts most."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from taciturn.core import messages, tally
from taciturn.core.amounts import Amount
from taciturn.core.arrays import evenness
from taciturn.core.budget import budget, doubt, scarce
from taciturn.core.codecs import LADDER, PEAKS, Codec
from taciturn.core.codecs.ladder import BITS, RUNGS, level_of, rung_of
from taciturn.core.policy import Policy, parse
from taciturn.core.rules import Situation
from taciturn.errors import InputError

CLIENTS, OPENING = 10, tally.Opening((), np.inf, np.inf)


def spend(
    text: str,
    size: int,
    spread: float,
    rounds: int = 300,
    first: int = 3,
    run: int | None = None,
    seed: int = 3,
) -> np.ndarray:
    """The share of the float32 upload in every round: clients differ by e^spread in examples, norms
    fall, and the first rounds have far longer updates than all others, the first by `first`."""
    rng = np.random.default_rng(seed)
    rule = parse(text).paced(run or rounds).rule
    state, shares, ladder = rule.init(), [], rule.codec
    population = 50 * np.exp(rng.normal(0, spread, 400))
    whole = CLIENTS * (4 * size + messages.OVERHEAD)

    def early(t: int) -> float:
        return first if t == 0 else 3 if t < 3 else 1

    for t in range(rounds):
        n = population[rng.integers(0, 400, CLIENTS)].astype(np.float32)
        m = (n**0.5 * rng.lognormal(0, 0.3, CLIENTS) * 0.998**t * early(t)).astype("f4")
        own = Situation(m, rng.random(CLIENTS, "f4"), examples=n)
        context = rule.broadcast(state)
        spoke, p = rule.speaks(own, context), rule.probability(own, context)
        rungs = rule.rung(own, context)
        heard = tally.of(np.zeros(size, "f4"), n, m, spoke, OPENING, p, rung=rungs, codec=ladder)
        state = rule.learn(state, heard)
        sent = sum(ladder.rungs[rung].nbytes(size) for rung in rungs[spoke])
        shares.append((sent + CLIENTS * messages.OVERHEAD) / whole)
    return np.array(shares)


@pytest.mark.parametrize("spread", [0.2, 0.6, 1.0])
@pytest.mark.parametrize(
    ("text", "target"),
    [("budget:0.3%", 0.003), ("budget:1%", 0.01), ("budget:5%", 0.05),
     ("budget:0.3%,codec=peaks", 0.003), ("budget:5%,codec=peaks", 0.05),
     ("budget:16kB", 16e3 / (CLIENTS * 4 * 40_000))],
)  # fmt: skip
def test_any_fifty_rounds_spend_what_was_asked_for(text: str, target: float, spread: float) -> None:
    shares = spend(text, 40_000, spread)[20:]
    windows = np.convolve(shares, np.ones(50) / 50, "valid") / target
    assert np.abs(windows - 1).max() < 0.1
    errors = np.convolve(shares, np.ones(10) / 10, "valid")[::10] - target
    assert (errors > 0).any()
    assert (errors < 0).any()
    assert abs(shares[150:].mean() / target - 1) < 0.03  # and does not grow


@pytest.mark.parametrize("spread", [0.2, 1.0])
@pytest.mark.parametrize(
    ("text", "target"),
    [("budget:0.3%,per=run", 0.003), ("budget:2%,per=run", 0.02),
     ("budget:0.3%,per=run,codec=peaks", 0.003),
     ("budget:4.8MB,per=run", 4.8e6 / 300 / 1.6e6)],
)  # fmt: skip
def test_a_run_spends_little_early_and_more_late(text: str, target: float, spread: float) -> None:
    shares = spend(text, 40_000, spread)
    assert shares.mean() == pytest.approx(target, rel=0.03)
    wanted = target * np.linspace(0.2, 1.8, 300)
    windows = [np.convolve(each[20:], np.ones(50) / 50, "valid") for each in (shares, wanted)]
    assert np.abs(windows[0] / windows[1] - 1).max() < 0.1


def off(shares: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How far every 50 rounds after the first 20 are from what they were allowed, in shares."""
    sent, allowed = (np.convolve(each[20:], np.ones(50), "valid") for each in (shares, wanted))
    return np.abs(sent / allowed - 1)


@pytest.mark.parametrize(("spread", "most"), [(0.6, 0.1), (1.0, 0.15)])
@pytest.mark.parametrize("text", ["budget:0.3%", "budget:0.3%,per=run", "budget:2%,per=run"])
def test_budgets_are_kept_whoever_is_drawn(text: str, spread: float, most: float) -> None:
    """Twelve populations. Where one client in six has e times the examples of half of all, and an
    update that is longer too, one window in a hundred may be a little further off than a tenth."""
    wanted = np.full(300, float(Amount(text.removeprefix("budget:").partition(",")[0])))
    if text.endswith("run"):
        wanted = wanted * np.linspace(0.2, 1.8, 300)
    found = [spend(text, 40_000, spread, seed=seed) for seed in range(12)]
    away = np.concatenate([off(shares, wanted) for shares in found])
    assert np.mean(away < 0.1) > 0.99
    assert away.max() < most
    late = [np.add.reduceat(shares - wanted, range(20, 300, 10)) for shares in found]
    for errors in late:  # too much and too little, in turns
        assert np.sum(errors[1:] * errors[:-1] < 0) > 5


@pytest.mark.parametrize("rounds", [100, 1_000])
def test_what_first_rounds_cannot_save_is_saved_later(rounds: int) -> None:
    """A model so small that headers alone take more than its first rounds may."""
    shares = spend("budget:0.3%,per=run", 3_000, 0.5, rounds)
    assert shares[: rounds // 10].mean() > 2 * 0.003 * 0.28
    assert shares.mean() == pytest.approx(0.003, rel=0.03)


def test_a_run_can_be_paced_again() -> None:
    policy = parse("budget:2GB,per=run").paced(10)
    assert policy.paced(1000).rule.init()[-1] == 1000
    assert policy.paced(1000).rule.init().bytes == pytest.approx(2e6)


def test_a_round_without_answers_changes_nothing_and_warns_of_nothing() -> None:
    for text in ("budget:1%", "budget:1kB", "budget:1%,per=run", "budget:1%,codec=peaks"):
        rule = parse(text).paced(10).rule
        nobody = tally.start(np.zeros(40, "f4"), codec=rule.codec)
        with np.errstate(all="raise"):
            state = rule.learn(rule.init(), nobody)
        assert np.isfinite(state).all()


def test_a_run_that_goes_on_spends_what_its_last_round_did() -> None:
    rule = parse("budget:1%,per=run").paced(30).rule
    shares = spend("budget:1%,per=run", 40_000, 0.3, rounds=90, run=30)
    assert rule.init().run == 30
    assert shares[:30].mean() == pytest.approx(0.01, rel=0.05)
    assert shares[30:].mean() == pytest.approx(0.018, rel=0.05)


@pytest.mark.parametrize("first", [6, 20])
def test_a_first_round_far_from_all_others_is_forgotten(first: int) -> None:
    shares = spend("budget:0.3%", 40_000, 0.6, first=first)[20:]
    windows = np.convolve(shares, np.ones(50) / 50, "valid") / 0.003
    assert np.abs(windows - 1).max() < 0.1


def test_a_budget_that_leaves_little_to_say_is_reported() -> None:
    rule = parse("budget:0.2%,per=run").paced(100).rule
    assert doubt(rule, 19_000, 10) == ""
    assert "leaves 128 bytes for an update of 19,000 weights" in scarce(rule, 19_000, 10)
    assert scarce(rule, 1_200_000, 10) == ""
    assert scarce(parse("budget:2kB").rule, 19_000, 10) != ""
    assert scarce(parse("budget:3kB").rule, 19_000, 10) == ""
    assert scarce(parse("full").rule, 100, 10) == ""


def test_bits_go_by_what_an_update_weighs() -> None:
    rule = budget("1%")
    context = rule.broadcast(rule.init())._replace(scale=0.01, flat=0.0, most=3.0)
    own = Situation(np.float32([1, 2, 1, 1000]), 0.0, examples=np.float32([25, 50, 0.1, 1000]))
    rungs = rule.rung(own, context)
    assert [RUNGS[rung].params[0][1] for rung in rungs[[0, 1, 3]]] == [0.25, 1.0, 3.0]
    assert rungs[2] == 0
    p = rule.probability(own, context)
    np.testing.assert_allclose(p, [1, 1, 0.128, 1], rtol=1e-6)
    assert rule.speaks(own._replace(uniform=0.12), context).all()
    assert not rule.speaks(own._replace(uniform=0.13), context)[2]
    # Nobody counts without bound.
    none = own._replace(norm=np.zeros(4, np.float32))
    np.testing.assert_allclose(rule.probability(none, context), 0.05)


def test_a_level_is_the_nearest_in_proportion() -> None:
    for i, bits in enumerate(BITS):
        assert level_of(bits) == level_of(1.05 * bits) == level_of(bits / 1.05) == i
    assert level_of(1e-9) == 0
    assert level_of(100.0) == len(BITS) - 1


def test_with_peaks_there_is_a_rung_for_each_level() -> None:
    rule = budget("1%", codec="peaks")
    assert rule.codec == PEAKS != LADDER
    assert "evenness" not in rule.looks_at
    assert [codec.name for codec in PEAKS.rungs] == ["peaks"] * 15 + ["eden"] * 3
    assert [dict(codec.params)["bits"] for codec in PEAKS.rungs] == list(BITS)
    context = rule.broadcast(rule.init())._replace(scale=0.01, flat=0.0, most=3.0)
    own = Situation(np.float32([1, 2, 1000]), 0.0, examples=np.float32([25, 50, 1000]))
    assert [BITS[rung] for rung in rule.rung(own, context)] == [0.25, 1.0, 3.0]
    assert str(parse("budget:1%,codec=peaks")) == "budget:1%,codec=peaks"
    assert parse("budget:1%,codec=peaks") != parse("budget:1%")


@pytest.mark.parametrize("tail", [0.7, 2.0, 50.0])
def test_a_rung_has_the_code_of_less_error(tail: float) -> None:
    """Updates from nearly alone to nearly normal: of both codes, that with less error is taken."""
    rng = np.random.default_rng(0)
    update = rng.standard_t(tail, 20_000).astype("f4")
    keys = [np.array([i, 1], np.uint32) for i in range(30)]
    for bits in BITS:
        own = RUNGS[rung_of(bits, evenness(update))]
        assert own.nbytes(20_000) * 8 / 20_000 == pytest.approx(bits, rel=0.2, abs=0.007)
        other = RUNGS[rung_of(bits, 1.0 if own.name == "draw_k" else 0.0)]
        errors = [
            np.mean([np.sum((codec.decode(codec.encode(update, key), key, 20_000) - update) ** 2)
                     for key in keys])
            for codec in (own, other)
        ]  # fmt: skip
        assert errors[0] <= 1.1 * errors[1]


@pytest.mark.parametrize("ladder", [LADDER, PEAKS], ids=["mixed", "peaks"])
@pytest.mark.parametrize("size", [65, 1000, 4096, 10_000])
def test_what_a_program_decodes_is_what_the_rungs_write(size: int, ladder: Codec) -> None:
    through = ladder.through
    compiled = jax.jit(through)
    update = np.random.default_rng(size).standard_normal(size, "f4")
    for rung, codec in enumerate(ladder.rungs):
        key = np.array([rung, 5], np.uint32)
        message = messages.Message(3, 1.0, update, rung=rung)
        read = messages.read(messages.write(message, ladder, key), ladder, key)
        assert read.rung == rung
        assert len(messages.write(message, ladder, key)) == messages.OVERHEAD + codec.nbytes(size)
        largest = np.abs(read.update).max()
        np.testing.assert_allclose(through(update, key, np.int32(rung)), read.update, atol=1e-6)
        np.testing.assert_allclose(compiled(update, key, rung), read.update, atol=1e-5 * largest)


def test_amounts_as_people_write_them() -> None:
    for text, number in (("1%", 0.01), (" 0.3 %", 0.003), ("200kB", 2e5), ("2GB", 2e9),
                         ("1KiB", 1024.0), ("5e-1MB", 5e5)):  # fmt: skip
        assert float(Amount(text)) == pytest.approx(number)
    assert Amount("1%") == Amount("1.0 %") != Amount("0.01B")
    assert str(parse("budget:1.0%")) == "budget:1%"
    for text in ("budget:1500000B", "budget:12345678B,per=run", "budget:1.2345678%",
                 "budget:0.00001%", "fixed:1e300", "fixed:1e-300", "fixed:1000000+zero",
                 "adaptive,k=-2000000"):  # fmt: skip
        assert parse(str(parse(text))) == parse(text)
        assert "e+" not in str(parse(text))
    assert parse("budget:2GB,per=run").paced(50).rule.init().bytes == pytest.approx(4e7)
    assert str(parse("budget:2GB,per=run").paced(50)) == "budget:2GB,per=run"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget:1", "above 0 and have a unit, as in 1%, 200kB or 2GB, got 1.0"),
        ("budget:0%", "got '0%'"),
        ("budget:-1%", "got '-1%'"),
        ("budget:1 mile", "got '1 mile'"),
        ("budget:1..2%", "got '1..2%'"),
        ("budget:20%", "at most 12.5% per round, got 20%"),
        ("budget:7%,per=run", "at most 6.94% per run, got 7%"),
        ("budget:1%,per=week", "`per` must be round or run"),
        ("budget", "needs `amount`, as in `budget:1%`"),
        ("budget:1%+eden:1", "do not go together"),
    ],
)
def test_bad_budgets(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("..", r"\.\.")):
        parse(text)


@pytest.mark.parametrize(
    ("text", "size", "kept"),
    [("budget:1.9%", 101, False), ("budget:1.9%", 20_000, True), ("budget:0.2%", 1_000, False),
     ("budget:200B", 1_000_000, False), ("budget:10kB", 1_000_000, True),
     ("budget:10kB,per=run", 1_000_000, False), ("budget:0.25%,per=run", 3_000, True),
     ("budget:0.2%,per=run", 2_561, False), ("full", 2, True), ("adaptive", 2, True)],
)  # fmt: skip
def test_a_budget_that_cannot_be_kept_is_doubted(text: str, size: int, kept: bool) -> None:
    """Where nothing is doubted, rounds cost what was asked for; else more."""
    policy = parse(text).paced(300)
    assert (doubt(policy.rule, size, CLIENTS) == "") == kept
    if policy.rule.name == "budget":
        target = dict(policy.rule.params)["amount"]
        after = 0 if policy.rule.init().run else 20  # rounds
        shares = spend(text, size, 0.5)[after:].mean() if target.is_share else None
        if shares is not None:
            assert (shares < 1.1 * target) == kept


def test_what_a_run_may_spend_needs_its_rounds() -> None:
    with pytest.raises(InputError, match="needs the number of rounds"):
        parse("budget:2GB,per=run").rule.init()
    with pytest.raises(InputError, match="needs the number of rounds"):
        parse("budget:1%,per=run").rule.init()
    with pytest.raises(InputError, match="do not go together"):
        Policy(codec=LADDER)
