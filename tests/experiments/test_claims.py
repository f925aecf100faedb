"""Verdicts follow from the numbers."""

import numpy as np
import pytest
from experiments.paper import checks, claims
from experiments.paper.checks import NO, YES, Check, Claim
from experiments.paper.comparing import compare
from experiments.paper.experiments import (
    BY_COHORT,
    EMNIST,
    EXPERIMENTS,
    FIXED,
    MAIN,
    SHAKESPEARE,
    STAND_INS,
    SYNTHETIC,
    THRESHOLDS,
)

from taciturn.studies.difference import SAME, UNDECIDED
from taciturn.studies.results import Arm, Results

TESTED = np.arange(5, 101, 5)
SIZE, SEEDS = 1000, 6
SHARES = {
    "increments_normal_share": 95.0,
    "increments_of_ten_steps_normal_share": 95.0,
    "unit_root_rejected_share": 95.0,
    "unit_root_rejected_in_last_epoch_share": 6.0,
}
MEASURED = [{**SHARES, "control": SHARES, "own_control": SHARES} for _ in range(3)]


def arm(final, rate=1.0, threshold=0.5, spread=0.01, swing=0.01, start=5):
    """Six seeds that have an accuracy from the round `start` on, and half of it before."""
    rng = np.random.default_rng(0)
    noise = swing * rng.normal(size=(SEEDS, 20))
    accuracy = np.full((SEEDS, len(TESTED)), float(final)) + noise
    accuracy[:, -1] = final + 0.01 * np.arange(SEEDS)
    accuracy[:, start > TESTED] /= 2
    path = threshold + spread * rng.normal(size=(SEEDS, 100))
    uploaded = np.tile(TESTED * 10 * rate * (4 * SIZE + 24), (SEEDS, 1))
    uploaded = uploaded + np.arange(SEEDS)[:, None]
    spoke = np.full((SEEDS, 100), 10 * rate)
    return Arm("", tuple(range(SEEDS)), TESTED, accuracy, uploaded, spoke, path)


def results(experiment, arms, cohort=10):
    return Results(experiment, 100, cohort, SIZE, arms, (), {}, {})


def as_the_paper_says():
    """Numbers with which every claim of the paper holds."""
    main = {"full": arm(80)}
    for weighting in ("", " unweighted"):
        for rule, worse in (("adaptive", 0), ("random", 4)):
            main |= {
                f"{rule}{weighting} ou": arm(80.5 - 2 * worse, 0.5),
                f"{rule}{weighting} ou constrained": arm(80.5 - worse, 0.5),
                f"{rule}{weighting} zero": arm(78 - worse, 0.5, start=30),
                f"{rule}{weighting} ignore": arm(79 - worse, 0.4, 0.6, spread=0.3, swing=5),
            }
    fixed = {
        f"{threshold} {name}": arm(79 - 2 * i - (name in ("zero", "ignore")), 1 - i / 10)
        for i, threshold in enumerate(THRESHOLDS)
        for name in STAND_INS
    }
    found = {e.name: results(e, main) for e in (*MAIN, SYNTHETIC)}
    for i, (cohort, experiment) in enumerate(BY_COHORT.items()):
        better = {name: a._replace(accuracy=a.accuracy + i) for name, a in main.items()}
        found[experiment.name] = results(experiment, better, cohort)
    return found | {FIXED.name: results(FIXED, fixed)}


def find(found, text, ours=False):
    """The claim that begins so, of the paper's own or of Taciturn's variant."""
    (claim,) = [claim for claim in found if claim.text.startswith(text) and claim.ours == ours]
    return claim


def test_all_hold_with_numbers_as_the_paper_has_them():
    found = claims.claims(as_the_paper_says(), MEASURED)
    assert len(found) > 30
    for claim in found:
        assert claim.verdict == checks.HOLDS, claim
        of_variant = [check for check in claim.checks if "constrained" in check.what]
        assert len(of_variant) == claim.ours * len(claim.checks)


def test_what_was_not_run_is_not_judged():
    for claim in claims.claims({}, []):
        assert claim.verdict == checks.MISSING
    some = claims.claims({EMNIST.name: as_the_paper_says()[EMNIST.name]}, [])
    beats = find(some, "`ou` beats")
    assert (beats.verdict, beats.yes_of_all) == (checks.IN_PART, "4 of 12")
    assert find(some, "more clients help").verdict == checks.MISSING


def changed(found, experiment, **arms):
    result = found[experiment.name]
    renamed = {name.replace("_", " "): value for name, value in arms.items()}
    return found | {experiment.name: result._replace(arms=result.arms | renamed)}


@pytest.mark.parametrize(
    ("text", "arms"),
    [
        ("`ou` beats", {"adaptive_ou": arm(77, 0.5)}),
        ("adaptive beats random", {"random_zero": arm(90, 0.5)}),
        ("`ou` is stable", {"adaptive_ou": arm(80, 0.5, spread=0.5, swing=9)}),
        ("`ignore` has higher", {"adaptive_zero": arm(78, 0.5, threshold=0.7)}),
        ("`ignore` has less steady", {"adaptive_zero": arm(78, 0.5, spread=0.4)}),
        ("`ignore` saves", {"adaptive_zero": arm(78, 0.3)}),
        ("`zero` is the worst", {"adaptive_zero": arm(79.9, 0.5)}),
        ("`zero` slows convergence", {"adaptive_zero": arm(78, 0.5)}),
        ("`zero` has similar savings", {"adaptive_zero": arm(78, 0.6)}),
        ("`zero` smooths", {"adaptive_zero": arm(78, 0.5, swing=9)}),
        ("adaptive `ou` needs less upload", {"adaptive_ou": arm(80.5, 0.5, start=20)}),
        ("adaptive `ou` needs less upload", {"adaptive_ou": arm(71, 0.5)}),
        ("random `ignore`", {"random_ou": arm(77, 0.5)}),
        ("adaptive `ou` converges", {"adaptive_ou": arm(71, 0.5)}),
    ],
)
def test_one_data_set_that_differs_makes_it_hold_in_part(text, arms):
    found = claims.claims(changed(as_the_paper_says(), EMNIST, **arms), MEASURED)
    claim = find(found, text)
    assert claim.verdict == checks.IN_PART
    assert {check.where for check in claim.checks if check.says != YES} == {"EMNIST"}


def test_savings_at_lower_accuracy_do_not_count():
    found = as_the_paper_says()
    for experiment in MAIN:
        low = arm(78, 0.5)
        found = changed(found, experiment, adaptive_ou=low, adaptive_unweighted_ou=low)
    assert find(claims.claims(found, MEASURED), "adaptive `ou` saves").verdict == checks.FAILS


def test_saving_on_one_data_set_is_enough_where_the_paper_says_up_to():
    found = as_the_paper_says()
    for experiment in MAIN[1:]:
        low = arm(78, 0.5)
        found = changed(found, experiment, adaptive_ou=low, adaptive_unweighted_ou=low)
    claim = find(claims.claims(found, MEASURED), "adaptive `ou` saves")
    assert (claim.verdict, claim.yes_of_all) == (checks.HOLDS, "2 of 6")


def test_fixed_thresholds_that_save_and_are_level_speak_against_the_claim():
    found = as_the_paper_says()
    good = found[FIXED.name]._replace(arms={f"{THRESHOLDS[1]} ou": arm(80.5, 0.5)})
    claim = find(claims.claims(found | {FIXED.name: good}, MEASURED), "fixed thresholds save")
    assert [check.says for check in claim.checks if check.says != checks.MISSING] == [NO]


def test_above_full_needs_more_than_level():
    level = arm(80, 0.5)
    found = changed(as_the_paper_says(), SHAKESPEARE, adaptive_ou=level)
    claim = find(claims.claims(found, MEASURED), "adaptive `ou` is above full")
    assert [check.says for check in claim.checks] == [NO, YES, YES, YES]


def test_thresholds_at_which_all_speak_are_no_check_of_the_best():
    found = as_the_paper_says()
    claim = find(claims.claims(found, MEASURED), "`ou` is best under fixed")
    assert {check.where for check in claim.checks} == {f"EMNIST, τ = {t}" for t in THRESHOLDS[1:]}
    assert "more than 90 % of the clients" in claim.rule


def test_fixed_thresholds_are_measured_by_adaptive_with_the_same_stand_in():
    found = changed(as_the_paper_says(), EMNIST, adaptive_zero=arm(60, 0.5))
    claim = find(claims.claims(found, MEASURED), "fixed thresholds save")
    assert {c.what for c in claim.checks if c.says != YES} == {"`zero` − `adaptive zero`"}


def test_steadiness_is_of_the_second_half_of_the_rounds():
    """A threshold that falls at first and is steady then is steady."""
    falling = arm(78, 0.5)
    falling.threshold[:, :50] += np.geomspace(100, 1e-3, 50)
    found = changed(as_the_paper_says(), EMNIST, adaptive_zero=falling)
    assert find(claims.claims(found, MEASURED), "`ignore` has less steady").verdict == checks.HOLDS


def test_a_threshold_falls_to_zero_more_often_than_others():
    high = arm(79, 0.4, threshold=0.6)
    low = arm(79, 0.4, threshold=0.6)
    low.threshold[3, 60] = 0.0
    found = as_the_paper_says()
    for experiment in MAIN:
        found = changed(found, experiment, adaptive_ignore=high, adaptive_unweighted_ignore=high)
    text = "the threshold of `ignore` falls"
    assert find(claims.claims(found, MEASURED), text).verdict == checks.FAILS
    claim = find(claims.claims(changed(found, EMNIST, adaptive_ignore=low), MEASURED), text)
    assert (claim.verdict, claim.yes_of_all) == (checks.HOLDS, "1 of 6")
    assert claim.checks[0].shown.startswith(
        "in 1 of 594 rounds and 1 of 6 seeds; lowest τ 0.0000; "
    )
    assert claim.checks[0].shown.endswith(
        "; `adaptive ou` in 0 of 594 rounds; `adaptive zero` in 0 of 594 rounds"
    )
    also = changed(found, EMNIST, adaptive_ignore=low, adaptive_zero=low)
    assert find(claims.claims(also, MEASURED), text).verdict == checks.FAILS


def test_zero_that_never_gets_there_is_slower():
    found = changed(as_the_paper_says(), EMNIST, adaptive_zero=arm(60, 0.5))
    check = find(claims.claims(found, MEASURED), "`zero` slows").checks[0]
    assert (check.says, check.word) == (YES, "later")
    assert check.shown.startswith("median +96.0, above 0 in 6")


def test_an_arm_that_never_gets_there_does_not_converge_alike():
    low = arm(80.5, 0.5)
    low.accuracy[5] = 60  # one seed
    check = find(claims.claims(changed(as_the_paper_says(), EMNIST, adaptive_ou=low), MEASURED),
                 "adaptive `ou` converges").checks[0]  # fmt: skip
    assert (check.says, check.shown) == (NO, "never there in 1 of 6 seeds")


@pytest.mark.parametrize(
    ("difference", "word", "says"),
    [
        ([1.0, 1.1, 1.2], "more, by less than 3", YES),  # surely more, and surely similar
        ([2.8, 2.9, 3.3], "more", UNDECIDED),
        ([5.0, 5.1, 5.2], "more", NO),
        ([-5.0, 0.0, 5.0], UNDECIDED, UNDECIDED),
    ],
)
def test_what_is_to_be_alike_may_differ_within_the_margin(difference, word, says):
    found = compare(np.array(difference), np.zeros(3), margin=3.0)
    made = checks.check("", "", found, SAME, checks.UPLOAD)
    assert (made.word, made.says) == (word, says)


def test_words_fit_what_is_compared():
    found = claims.claims(as_the_paper_says(), MEASURED)
    words = {
        text: {check.word for check in find(found, text).checks}
        for text in ("`ignore` saves the most", "`ignore` has higher", "`zero` slows", "`ou` beats")
    }
    assert list(words.values()) == [{"less"}, {"higher"}, {"later"}, {"ahead"}]


def test_weights_are_measured_by_the_controls():
    """Few pass the last epoch's test, and so it is with a true OU process."""
    text = "weights under SGD"
    assert find(claims.claims({}, MEASURED), text).yes_of_all == "8 of 8"
    less = [one | {"increments_normal_share": 34.0 + i} for i, one in enumerate(MEASURED)]
    claim = find(claims.claims({}, less), text)
    assert (claim.verdict, claim.yes_of_all) == (checks.IN_PART, "6 of 8")
    assert "35 % of the weights, control 95 %" in claim.checks[0].shown
    for place, control in ((0, "control"), (4, "own_control")):
        more = [one | {control: SHARES | {"increments_normal_share": 34.0 + i}}
                for i, one in enumerate(MEASURED)]  # fmt: skip
        says = [check.says for check in find(claims.claims({}, more), text).checks]
        assert says == [NO if i == place else YES for i in range(8)]  # unlike them, by more


@pytest.mark.parametrize(
    ("says", "any_is_enough", "verdict"),
    [
        ([checks.MISSING], False, checks.MISSING),
        ([YES, checks.MISSING], False, checks.IN_PART),
        ([NO, checks.MISSING], False, checks.FAILS),
        ([YES, YES], False, checks.HOLDS),
        ([YES, NO], False, checks.IN_PART),
        ([YES, UNDECIDED], False, checks.IN_PART),
        ([NO, UNDECIDED], False, checks.FAILS),
        ([UNDECIDED, UNDECIDED], False, checks.OPEN),
        ([YES, NO], True, checks.HOLDS),
        ([NO, NO], True, checks.FAILS),
    ],
)
def test_a_verdict_counts_checks(says, any_is_enough, verdict):
    claim = Claim("", "", [Check("", "", "", "", one) for one in says], any_is_enough)
    assert claim.verdict == verdict
    assert claim.yes_of_all == f"{says.count(YES)} of {len(says)}"


def test_every_main_experiment_is_known_by_its_name():
    assert all(EXPERIMENTS[experiment.name] is experiment for experiment in MAIN)
