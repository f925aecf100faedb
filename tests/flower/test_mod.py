"""The client's side: what leaves the device."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import config, context, record
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict

from taciturn import TaciturnError, adaptive
from taciturn.flower import speak
from taciturn.flower.protocol import VERSION

RULE = {"taciturn.protocol": VERSION, "taciturn.rule": "fixed:1", "taciturn.context.threshold": 1.0,
        "taciturn.exclude": []}  # fmt: skip
SENT = {"w": np.zeros((2, 2), np.float32), "b": np.zeros(3, np.float32)}


def ask(trained, mod=None, kind="train", settings=RULE, sent=SENT, metrics=None):
    """The reply that leaves a client whose app returns `trained`."""
    asked = Message(RecordDict({"arrays": record(**sent), "config": config(**settings)}), 7, kind)

    def app(message, context):
        if isinstance(trained, Error):
            return Message(trained, reply_to=message)
        content = RecordDict({"metrics": MetricRecord(metrics or {"num-examples": 5})})
        if trained is not None:
            content["arrays"] = record(**trained)
        # An app may do with its copy of the message what it likes.
        message.content["arrays"].clear()
        return Message(content, reply_to=message)

    return (mod or speak())(asked, context(0), app)


def step(size, **others):
    """A model that lies `size` away from what was sent."""
    w = np.zeros((2, 2), np.float32)
    w[0, 1] = size
    return SENT | {"w": w} | others


def test_an_update_above_the_threshold_leaves_with_its_norm():
    reply = ask(step(1.5))
    assert dict(reply.content["metrics"]) == {"num-examples": 5, "taciturn.norm": 1.5}
    np.testing.assert_array_equal(reply.content["arrays"]["w"].numpy(), step(1.5)["w"])


def test_an_update_below_the_threshold_stays():
    reply = ask(step(0.5))
    assert dict(reply.content["metrics"]) == {"num-examples": 5, "taciturn.norm": 0.5}
    assert not reply.content.array_records


def test_all_layers_count_in_the_norm():
    reply = ask({"w": np.full((2, 2), 3.0, np.float32), "b": np.full(3, -2.0, np.float32)})
    assert reply.content["metrics"]["taciturn.norm"] == pytest.approx(math.sqrt(36 + 12))


def test_the_order_of_elements_in_memory_does_not_matter():
    sent = {"w": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))}
    trained = {"w": np.ascontiguousarray(sent["w"])}
    assert ask(trained, sent=sent).content["metrics"]["taciturn.norm"] == 0.0


def test_a_model_of_other_precision_can_be_compared():
    trained = {name: array.astype(np.float64) for name, array in step(1.5).items()}
    assert ask(trained).content["metrics"]["taciturn.norm"] == 1.5


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_other_messages_are_left_alone(kind):
    reply = ask(step(0.5), kind=kind)
    assert dict(reply.content["metrics"]) == {"num-examples": 5}
    assert "arrays" in reply.content


def test_a_train_message_with_an_action_may_be_answered_with_silence():
    assert not ask(step(0.5), kind="train.more").content.array_records


def test_a_server_without_taciturn_gets_full_replies():
    reply = ask(step(0.5), settings={"lr": 0.1})
    assert dict(reply.content["metrics"]) == {"num-examples": 5}
    assert "arrays" in reply.content


def test_an_error_is_passed_on():
    assert ask(Error(code=1, reason="no data")).error.reason == "no data"


@pytest.mark.parametrize("trained", [None, {"w": SENT["w"]}, SENT | {"b": np.zeros(4, "f4")}])
def test_what_does_not_fit_the_model_is_left_to_the_server(trained):
    reply = ask(trained)
    assert "taciturn.norm" not in reply.content["metrics"]
    assert ("arrays" in reply.content) == (trained is not None)


def test_a_broken_update_is_not_sent():
    reply = ask(step(np.nan))
    assert math.isnan(reply.content["metrics"]["taciturn.norm"])
    assert not reply.content.array_records


def test_counters_and_excluded_layers_always_leave():
    sent = SENT | {"count": np.array(3), "head": np.zeros(2, np.float32)}
    trained = step(0.5, count=np.array(4), head=np.full(2, 9.0, np.float32))
    settings = RULE | {"taciturn.exclude": ["he*"]}
    reply = ask(trained, sent=sent, settings=settings)
    # The head moved far, but the norm is over what can be left out.
    assert reply.content["metrics"]["taciturn.norm"] == 0.5
    assert isinstance(reply.content["arrays"], ArrayRecord)
    assert set(reply.content["arrays"]) == {"count", "head"}
    assert reply.content["arrays"]["count"].numpy() == 4


@pytest.mark.parametrize(
    ("own", "size", "speaks"),
    [(None, 1.5, True), ("full", 1.5, True), ("full", 0.5, False), ("fixed:2", 1.5, False),
     ("fixed:2", 2.5, True), ("fixed:0.1", 0.5, False), ("random:0", 2.5, False),
     ("random:1", 0.5, False), ("random:1", 2.5, True)],
)  # fmt: skip
def test_a_rule_of_its_own_only_makes_a_client_quieter(own, size, speaks):
    assert bool(ask(step(size), speak(own)).content.array_records) == speaks


@pytest.mark.parametrize("rule", ["adaptive", adaptive(), 0.5])
def test_a_rule_that_needs_others_cannot_be_a_clients_own(rule):
    with pytest.raises(TaciturnError, match="must need nobody else"):
        speak(rule)


def test_a_rule_that_this_version_does_not_know_makes_it_speak(caplog):
    reply = ask(step(0.5), settings=RULE | {"taciturn.rule": "telepathy:2"})
    assert "arrays" in reply.content
    assert "There is no rule called `telepathy`" in caplog.text
    assert "no rule called `telepathy`" in reply.content["taciturn"]["problem"]


def test_random_clients_draw_anew_every_time():
    settings = {"taciturn.protocol": VERSION, "taciturn.rule": "random:0.5",
                "taciturn.context.probability": 0.5, "taciturn.exclude": []}  # fmt: skip
    spoke = sum("arrays" in ask(step(1.0), settings=settings).content for _ in range(200))
    assert 50 < spoke < 150  # seven deviations


def test_a_device_needs_no_simulator():
    code = "import sys, taciturn.flower; sys.exit(any(m in sys.modules for m in ('jax', 'optax')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_flower_the_install_command_is_printed():
    code = "import sys; sys.modules['flwr'] = None; import taciturn.flower"
    found = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert "`flwr` is not installed. `taciturn[flower]` needs it." in found.stderr
    assert 'nstall it with: pip install "' in found.stderr
    assert '"taciturn' not in found.stderr


def test_a_flower_that_is_too_old_is_named():
    code = (
        "import importlib.metadata as m; m.version = lambda name: '1.39.2'; import taciturn.flower"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert "needs flwr 1.40 or later, this is 1.39.2. " in found.stderr
    assert 'nstall it with: pip install "' in found.stderr
