"""Aggregator and filters: the policy is that of Flower and of the plain loop; what is refused."""

import subprocess
import sys

import federation as flower
import numpy as np
import pytest
from federation import BAD, EXAMPLES, NODES, SEED
from loop import Loop, changed, who
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.fuel.utils import fobs

from taciturn import TaciturnError, runs
from taciturn.federation import client
from taciturn.nvflare import Taciturn, speak
from taciturn.nvflare.filters import Speak
from taciturn.nvflare.messages import ANSWER, REMARK

SIZE = 300
pytestmark = pytest.mark.usefixtures("everything_logged")
TARGETS = flower.targets(size=SIZE)
NAMES = [f"{node}" for node in range(NODES)]  # as Flower's nodes are called in its tests
POLICIES = ["full", "full+eden:1", "adaptive,k=0+ou+peaks:0.2", "adaptive,k=0+ignore",
            "full+top_k:0.05,feedback=true", "budget:12%", "optimal:0.5+zero"]  # fmt: skip


@pytest.fixture
def everything_logged(caplog):
    caplog.set_level("INFO", logger="taciturn")


def model():
    return {"a": np.zeros((2, SIZE // 4), "f4"), "b": np.zeros(SIZE - SIZE // 4 * 2, "f4")}


def pulled(k, params):
    """Moves half of the way to the client's target, in the arrays that came."""
    for name, weights in flower.toward(params, TARGETS[k], 0.5).items():
        params[name][:] = weights
    return params, EXAMPLES[k]


def flat(params):
    return np.concatenate([np.asarray(array).ravel() for array in params.values()])


def loop(policy="full", rounds=1, start=None, step=pulled, names=NAMES, **options):
    own = {name: options.pop(name) for name in ("diff", "plain", "tamper") if name in options}
    aggregator = Taciturn(policy, **{"seed": SEED} | options)
    return Loop(aggregator, start or model(), step, names, rounds, **own)


def history(loop):
    return loop.aggregator._server.history


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_the_same_on_flower_and_in_the_plain_loop(policy, monkeypatch):
    """The same code bytes, and the same weights."""
    monkeypatch.setattr(client, "_uniform", lambda: 0.0)  # who may speak does, as in the loop
    ours, codes = loop(policy, 4, norm_limit=None), []

    def keep(node, reply):
        codes.append(flower.said(reply.content).code)
        return reply

    found = flat(ours.run())
    _, result, _ = flower.run(policy, 4, wanted=TARGETS, norm_limit=None, tamper=keep)
    assert [code for codes in ours.codes for code in codes] == codes
    np.testing.assert_allclose(found, flower.flat(result.arrays), rtol=0, atol=1e-6)
    state, _, _ = flower.plain_loop(policy, TARGETS, 4)
    np.testing.assert_allclose(found, state.weights, rtol=1e-6, atol=1e-6)


def test_a_script_that_returns_differences_moves_the_model_as_far():
    whole, differences = (loop("full+eden:1", 3, diff=diff).run() for diff in (False, True))
    np.testing.assert_allclose(flat(whole), flat(differences), atol=1e-6)


@pytest.mark.parametrize("diff", [False, True])
def test_a_client_without_filters_counts_whole_or_as_a_difference(diff, caplog):
    ours = loop("full", plain=(0, 1), diff=diff)
    np.testing.assert_allclose(flat(ours.run()), flower.mean_of(TARGETS), atol=1e-6)
    assert history(ours)[0]["spoke"] == NODES
    assert "nodes without `speak()` among their mods send their weights whole" in caplog.text


def test_the_silent_send_their_norm_alone_and_the_bytes_say_so():
    ours = loop("fixed:1e9+ou")
    ours.run()
    (row,) = history(ours)
    assert (row["spoke"], row["silent"], row["bytes_up"]) == (0, NODES, 0)
    assert 0 < row["overhead_up"] < 100 * NODES
    assert row["bytes_up_full"] == row["overhead_up"] + 4 * SIZE * NODES
    assert row["bytes_down"] == 4 * SIZE * NODES


GARBAGE = {  # what every engine checks is in Flower's tests
    "a number for a report": lambda dxo: dxo.data.update({ANSWER: 1.0}),
    "a code that is cut": lambda dxo: dxo.data.update({ANSWER: dxo.data[ANSWER][:-1]}),
    "text for an array": lambda dxo: dxo.data.update({"a": "x"}),
    "text for examples": lambda dxo: dxo.meta.update(NUM_STEPS_CURRENT_ROUND="many"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_rejected_and_the_round_goes_on(kind, caplog):
    ours = loop("full+eden:1", tamper=changed(GARBAGE[kind], BAD))
    found = ours.run()
    (row,) = history(ours)
    assert (row["rejected"], row["spoke"]) == (1, NODES - 1)
    assert f"the reply of node {BAD} is rejected" in caplog.text
    none = changed(lambda dxo: dxo.meta.update(NUM_STEPS_CURRENT_ROUND=0), BAD)
    left_out = loop("full+eden:1", tamper=none)
    np.testing.assert_array_equal(flat(found), flat(left_out.run()))


def test_a_result_of_another_round_is_not_taken():
    """A controller of tasks hands on whatever comes late."""
    ours = loop("full", 2)
    ours.run(1)
    ours.context.set_peer_context(who("0"))
    task = FLModelUtils.to_shareable(FLModel(params=model(), current_round=1))
    ours.put(AppConstants.TRAIN_SHAREABLE, task)
    ours.fire(AppEventType.BEFORE_TRAIN_TASK)
    for of_round, taken in ((1, True), (0, False), (None, False)):
        ours.aggregator.reset_stats()
        result = DXO(DataKind.WEIGHTS, model()).to_shareable()
        result.add_cookie(AppConstants.CONTRIBUTION_ROUND, of_round)
        assert ours.aggregator.accept(result, ours.context) is taken
        assert len(ours.aggregator._replies) == taken
    ours.aggregator.reset_stats()
    nonsense = Shareable()
    nonsense.add_cookie(AppConstants.CONTRIBUTION_ROUND, 1)
    assert ours.aggregator.accept(nonsense, ours.context)
    assert "not a valid DXO" in ours.aggregator._replies[0].problem


@pytest.mark.parametrize("policy", ["full", "budget:12%", "fixed:1e9+ou"])
def test_the_statistics_of_batchnorm_travel_whole_and_are_averaged(policy):
    start = {"bn.running_mean": np.zeros(8, "f4"), "bn.running_var": np.ones(8, "f4"),
             "bn.num_batches_tracked": np.array(0), "fc": np.zeros((40, 8), "f4")}  # fmt: skip

    def step(k, params):
        return {x: array + array.dtype.type(k) for x, array in params.items()}, EXAMPLES[k]

    ours = loop(policy, start=start, step=step, norm_limit=None)
    found, mean = ours.run(), np.average(range(NODES), weights=EXAMPLES)
    np.testing.assert_allclose(found["bn.running_mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(found["bn.running_var"], 1 + mean, rtol=1e-6)
    assert found["bn.num_batches_tracked"] == round(mean)
    assert [array.dtype for array in found.values()] == [array.dtype for array in start.values()]
    assert history(ours)[0]["bytes_always"] == NODES * (8 * 4 * 2 + 8)


@pytest.mark.parametrize(
    "policy", ["adaptive,k=0.3+ou+eden:0.5", "budget:12%", "optimal:0.4+last", "full"]
)
def test_a_job_that_is_submitted_again_goes_on_bit_for_bit(policy, tmp_path, monkeypatch, caplog):
    def play(folder, rounds=None):
        ours = loop(policy, 5, folder=folder)
        first = ours.controller.start_round
        draws = (np.random.default_rng(t) for t in range(first, 9))
        begin = ours.aggregator.reset_stats

        def reset():  # a round's draws follow from its number
            monkeypatch.setattr(client, "_uniform", next(draws).random)
            begin()

        ours.aggregator.reset_stats = reset
        found = ours.run(rounds)
        if rounds is not None:
            ours.aggregator._stack.close()  # as the end of its process does
        return flat(found), history(ours), ours

    whole, rows, _ = play(None)
    for rounds in (1, 2):
        play(tmp_path, rounds)
    found, again, last = play(tmp_path)
    np.testing.assert_array_equal(found, whole)
    assert repr(again) == repr(rows)
    assert len(last.results) == 2
    assert "going on after round 3 of 5" in caplog.text
    assert [row["round"] for row in runs.read_csv(tmp_path / "metrics.csv")] == list("12345")
    summary = runs.read_json(tmp_path / "summary.json")
    assert (summary["task"], summary["rounds"]) == ("nvflare", 5)
    assert "NVFlare's own" in caplog.text


def test_a_folder_of_another_policy_ends_the_job_with_one_line(tmp_path, monkeypatch):
    loop("full", 1, folder=tmp_path).run()
    said = []
    monkeypatch.setattr(Taciturn, "system_panic", lambda self, why, context: said.append(why))
    loop("full+eden:1", 2, folder=tmp_path)
    assert len(said) == 1
    assert "holds a run of full around NVFlare, this one is of full+eden:1" in said[0]


def test_a_mean_that_is_not_finite_is_not_handed_on(caplog):
    start = {"w": np.full(4, 6e4, np.float16)}

    def step(k, params):
        params["w"] += np.float16(5e3)
        return params, 1

    ours = loop("full+eden:1", start=start, step=step)
    assert (ours.run()["w"] == np.float16(6e4)).all()
    assert "that are not finite, first in `w`: the model stays" in caplog.text


def test_what_cannot_be_answered_as_asked_leaves_whole_and_says_why(caplog):
    def lacking(k, params):
        trained, examples = pulled(k, params)
        return {name: trained[name] for name in ("a", "b")[: 1 + (k != BAD)]}, examples

    ours = loop("full+eden:1", step=lacking)
    ours.run()
    assert history(ours)[0]["rejected"] == 1
    assert "the result is left as it is: `b` is not in it" in caplog.text


def weights(**meta):
    return DXO(DataKind.WEIGHTS, model(), meta).to_shareable()


def asked():
    """A context in which a task with a request came."""
    ours = loop("full+eden:1")
    seen = []
    ours.client = lambda k, task: seen.append(task) or weights()
    ours.round(0)
    context = who("0")
    ours.filters[0][0].process(seen[0], context)
    return ours.filters[0][1], context


def test_weights_that_another_filter_has_processed_are_not_read():
    speaking, context = asked()
    for meta in ({"PROCESSED_ALGORITHM": "HE"}, {}):
        result = from_shareable(speaking.process(weights(**meta), context))
        assert (ANSWER in result.data) == (not meta)
        assert ("processed by HE" in result.meta.get(REMARK, "")) == bool(meta)


def test_a_sites_own_filter_comes_first_and_lets_nothing_else_out():
    speaking, context = asked()
    first = Speak(required=True).process(weights(), context)
    twice = speaking.process(fobs.loads(fobs.dumps(first)), context)
    assert from_shareable(twice).data == from_shareable(first).data
    for site, task in ((True, who("0")), (False, who("0"))):
        result = Speak(required=site).process(weights(), task)
        assert (result.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR) is site
    failed = Shareable()
    failed.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
    assert Speak(required=True).process(failed, who("0")) is failed


def spoken(module, aggregator=None, **options):
    """`speak` with a recipe of this module."""
    own = {"__module__": f"nvflare.{module}", "aggregator": aggregator or Taciturn(**options)}
    speak(type("SomeRecipe", (), own)())


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda: Taciturn("budgt"), "Did you mean `budget`"),
     (lambda: Taciturn("full+down=eden:1"), "`down=` is not for NVFlare"),
     (lambda: spoken("recipe.fedavg", "none"), "must have `aggregator=taciturn"),
     (lambda: spoken("app_opt.pt.recipes.fedavg_he"), "homomorphic"),
     (lambda: spoken("app_opt.tf.recipes.scaffold"), "Scaffold sends"),
     (lambda: spoken("app_opt.pt.recipes.swarm"), "has no server"),
     (lambda: spoken("recipes.fedopt", folder="/f"), "`folder=` goes with FedAvg alone")],
)  # fmt: skip
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(TaciturnError, match=message):
        call()


def test_an_old_nvflare_is_refused():
    code = "import importlib.metadata as m; m.version = lambda name: '2.8.1'"
    command = [sys.executable, "-c", f"{code}; import taciturn.nvflare"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "needs nvflare 2.9 or later, this is 2.8.1. " in found.stderr
