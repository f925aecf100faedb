"""Simulations that are killed, stopped or run out of disk, and go on as if nothing had been."""

import dataclasses
import errno
import itertools
import os
import shutil
import signal
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_tasks import SEVERAL, assert_identical, assert_same, program_of, tiny

import taciturn
from taciturn import runs
from taciturn.errors import RunError, Stopped, WriteError
from taciturn.progress import Compiling, Progress
from taciturn.sim import checkpoint, devices, engine
from taciturn.sim.checkpoint import pack, unpack

pytestmark = pytest.mark.usefixtures("every_round_is_saved")

TINY = tiny()


def with_one_more(params, batch):
    found = TINY.metrics(params, batch)
    return found | {"one, more": (found["accuracy"][0] / 3, found["accuracy"][1])}


TASK = dataclasses.replace(TINY, metrics=with_one_more)
ROUNDS = 6
# As few arms as have every rule, every stand-in and every codec, and all that is kept of a client.
EVERY_PART = (
    "full+ou+float32", "fixed:0.3+zero+float16", "adaptive,k=0+ignore+bfloat16",
    "random:0.5+last+quantize:2", "optimal:0.5+own+eden:0.5", "random:0.5+ou+sparse_ternary:0.2",
    "adaptive,k=0+ignore+top_k:0.3,feedback=true", "budget:300B", "full+eden:1+down=eden:0.5",
)  # fmt: skip


def run(folder, arms=SEVERAL, **settings):
    defaults = {"task": TASK, "rounds": ROUNDS, "cohort": 3, "seeds": (3, 5), "lanes": 1}
    return taciturn.compare(arms=arms, folder=folder, evaluate_every=2, **defaults | settings)


@pytest.fixture
def moments(monkeypatch, tmp_path):
    """What is on the disk at every moment at which something is being written there.

    A process that is killed with −9 leaves just that. Rows are written in two pieces, so that some
    are half there.
    """
    folder, taken = tmp_path / "run", []

    def look():
        taken.append(tmp_path / f"moment-{len(taken)}")
        shutil.copytree(folder, taken[-1])

    def watched(original):
        def call(*arguments, **options):
            look()
            result = original(*arguments, **options)
            look()
            return result

        return call

    def in_two(self, text):
        for part in (text[: len(text) // 3], text[len(text) // 3 :]):
            whole(self, part)
            look()

    whole = runs.StreamedTable._write
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched(os.replace))
        patch.setattr(os, "fsync", watched(os.fsync))
        patch.setattr(Path, "unlink", watched(Path.unlink))
        patch.setattr(runs.StreamedTable, "_write", in_two)
        yield taken


# Arms, settings, and at how many moments the run is killed.
CASES = {
    "every part": (EVERY_PART, {"kept_messages": 4, "server_optimizer": "adam",
                                 "server_lr": 0.1}, 14),
    "choice": (("adaptive,k=0+ou", "full"), {"choice": 4, "dropout": 0.2}, 6),
    "plain": (("adaptive,k=0+ou", "optimal:0.5+own+eden:1+down=eden:1"),
              {"plain": True, "server_optimizer": "adam", "seeds": (3,), "lanes": None}, 5),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_killed_at_any_moment_it_ends_where_it_would_have(case, moments, tmp_path, monkeypatch):
    texts, settings, kills = CASES[case]
    arms = {text: text for text in texts}
    wanted = run(tmp_path / "run", arms, **settings)
    assert_identical(run(None, arms, **settings), wanted)
    table = (tmp_path / "run" / "metrics.csv").read_bytes()
    monkeypatch.undo()
    assert len(moments) > 8 * ROUNDS
    rng = np.random.default_rng(len(case))
    for i in rng.choice(len(moments), kills, replace=False):
        told = []
        found = run(moments[i], arms, progress=told.append, **settings)
        assert_identical(found, wanted)
        assert (moments[i] / "metrics.csv").read_bytes() == table
        # What was done is not done again, once there is a checkpoint.
        assert sum(isinstance(p, Compiling) for p in told) <= 1
    # The last moment has everything: nothing is left to do but to read it.
    assert_identical(run(moments[-1], arms, **settings), wanted)


def rounds_told(told, arm="full"):
    return [p.round for p in told if isinstance(p, Progress) and p.arm == arm]


def killed(folder, rounds, arms=SEVERAL, **settings):
    """Runs so many rounds of each arm, one after another or not, as if Ctrl-C came twice."""
    told = itertools.count(1)

    def tell(record):
        if isinstance(record, Progress) and next(told) == rounds * len(arms):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder, arms, progress=tell, **settings)


def test_it_goes_on_from_the_last_checkpoint_and_tells_what_was_before(tmp_path):
    killed(tmp_path, 4)
    names = {path.stem for path in tmp_path.glob("[cm]*")}
    assert names == {"checkpoint-3", "checkpoint-4", "metrics"}
    told = []
    found = run(tmp_path, progress=told.append)
    assert rounds_told(told) == [4, 5, 6]
    full = [p for p in told if isinstance(p, Progress) and p.arm == "full"][-1]
    assert full.spoke == found["full"].spoke.sum(1).mean()
    assert full.bytes_up == found["full"].bytes_up.sum(1).mean()
    assert full.new["spoke"].shape == (2, 1)


def test_lanes_stay_as_they_were(tmp_path, monkeypatch):
    """What is added up in another order is rounded in another way."""
    before = program_of(lambda: killed(tmp_path, 3, lanes=None), monkeypatch)
    monkeypatch.setattr(engine.plan, "best_lanes", lambda *arguments: 2 * before.lanes)
    engine._program.cache_clear()  # as in another process
    after = program_of(lambda: run(tmp_path, lanes=None), monkeypatch)
    assert after.lanes == before.lanes


def test_runs_that_do_not_fit_go_in_groups_which_go_on(tmp_path, monkeypatch, caplog):
    arms = {name: name for name in ("random:0.8+last", "random:0.4+last")}  # of one structure
    together = run(None, arms, devices=1)
    assert not caplog.messages
    monkeypatch.setattr(devices, "memory", lambda: 1)
    wanted = run(None, arms, devices=1)
    assert any("2 runs side by side need" in message for message in caplog.messages)
    for name in arms:
        assert wanted[name].seeds == (3, 5)
        assert_same(wanted[name], together[name], 1e-6)
    # Four runs, one after another: in the second round of the third, with one to come.
    killed(tmp_path, ROUNDS + 1, arms, devices=1)
    told = []
    caplog.clear()
    assert_identical(run(tmp_path, arms, devices=1, progress=told.append), wanted)
    assert not caplog.messages  # the groups are known: nothing is tried again
    assert rounds_told(told, "random:0.4+last") == [2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]


def test_what_no_longer_fits_says_so(tmp_path, monkeypatch):
    killed(tmp_path, 2)
    monkeypatch.setattr(devices, "memory", lambda: 1)
    with pytest.raises(RunError, match="6 runs side by side need"):
        run(tmp_path)


def flip(path, at=0.97):
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "at"), [("checkpoint-4.safetensors", 0.97), ("metrics.csv", 0.99)]
)
def test_where_a_checkpoint_is_damaged_the_one_before_is_used(name, at, tmp_path, caplog):
    killed(tmp_path, 4)
    flip(tmp_path / name, at)
    told = []
    assert_identical(run(tmp_path, progress=told.append), run(None))
    assert rounds_told(told) == [3, 4, 5, 6]
    (line,) = caplog.messages
    assert name in line
    assert "checkpoint-3.safetensors is used" in line
    assert (tmp_path / "checkpoint-4.unusable").exists()


def test_where_nothing_can_be_used_it_says_what_and_leaves_all_as_it_is(tmp_path):
    killed(tmp_path, 4)
    before = {path.name for path in tmp_path.iterdir()}
    flip(tmp_path / "metrics.csv", 0.1)
    with pytest.raises(RunError, match=r"metrics\.csv is damaged"):
        run(tmp_path)
    (tmp_path / "metrics.csv").write_text("arm")
    with pytest.raises(RunError, match=r"metrics\.csv has 3 bytes, and had"):
        run(tmp_path)
    (tmp_path / "metrics.csv").unlink()
    with pytest.raises(RunError, match="No such file"):
        run(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == before - {"metrics.csv"}


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    killed(tmp_path, 3, client_optimizer=optax.sgd(0.01))
    clients, data = TASK.clients, "the checksum of the data is"
    rolled, test = (
        {name: np.roll(array, 1, axis=0) for name, array in arrays.items()}
        for arrays in (clients.arrays, TASK.test)
    )
    others = [
        ({"rounds": 9}, "rounds is 6 there and 9 here"),
        ({"seeds": (3, 6)}, r"seeds is \[3, 5\] there and \[3, 6\] here"),
        ({"arms": {"full": "full"}}, "arms is"),
        ({"client_optimizer": optax.sgd(1.0)}, "a local step is"),
        ({"clients": dataclasses.replace(clients, arrays=rolled)}, data),
        ({"clients": dataclasses.replace(clients, examples=clients.examples * 2)}, data),
        ({"test": test}, data),
        ({"hold_out": "last"}, "hold_out is"),
        ({"loss": lambda *given: 3 * TASK.loss(*given)}, "a local step is"),
    ]
    for other, message in others:
        own = {name: other.pop(name) for name in vars(TASK) if name in other}
        asked = {"client_optimizer": optax.sgd(0.01), "task": dataclasses.replace(TASK, **own)}
        with pytest.raises(RunError, match=f"of another run: {message}"):
            run(tmp_path, **asked | other)


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_saves_the_chunk_and_another_stops_at_once(times, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checkpoint, "_LONGEST", 1e9)  # no checkpoint but for the signal
    before = signal.getsignal(signal.SIGINT)

    def tell(record):
        if isinstance(record, Progress) and record.round == 2 and record.arm == "full":
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stopped if times == 1 else KeyboardInterrupt) as caught:
        run(tmp_path, progress=tell)
    assert signal.getsignal(signal.SIGINT) is before
    assert "stopping when these rounds are saved" in capsys.readouterr().err
    assert (tmp_path / "checkpoint-3.safetensors").exists() == (times == 1)
    if times == 1:
        assert (str(caught.value), caught.value.signal) == ("Stopped after round 3.", signal.SIGINT)


@pytest.mark.parametrize("what", ["metrics.csv", "checkpoint-4.safetensors"])
def test_a_full_disk_is_one_line_and_takes_nothing_that_was_saved(what, tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    whole, synced = runs.StreamedTable._write, os.fsync

    def half(self, text):
        if "full,5,4," in text:
            whole(self, text[: len(text) // 2])
            raise full
        whole(self, text)

    def sync(descriptor):
        if list(tmp_path.glob("checkpoint-3.*")):
            raise full
        synced(descriptor)

    with monkeypatch.context() as patch:
        if what == "metrics.csv":
            patch.setattr(runs.StreamedTable, "_write", half)
        else:
            patch.setattr(os, "fsync", sync)
        said = "cannot be written: No space left on device. What was saved, 3 rounds, is safe."
        with pytest.raises(WriteError, match=said):
            run(tmp_path)
    told = []
    assert_identical(run(tmp_path, progress=told.append), run(None))
    assert rounds_told(told) == [3, 4, 5, 6]


def test_checkpoints_are_as_rare_as_they_are_dear(monkeypatch):
    monkeypatch.setattr(checkpoint, "_LONGEST", 300.0)
    assert checkpoint._pause(0.02) == pytest.approx(2)  # 1 % of the time
    assert checkpoint._pause(1.5) == pytest.approx(150)
    assert checkpoint._pause(20) == 300  # and every five minutes at the least


def test_one_process_at_a_time(tmp_path):
    with runs.claimed(tmp_path), pytest.raises(RunError, match="is in use: another process"):
        run(tmp_path)


def test_every_leaf_comes_back_as_what_it_was():
    """A number that came back as an array would be rounded in another way."""
    tree = {"number": 0.5, "scalar": np.float32(0.1), "array": np.ones(2), "jax": jnp.ones(2),
            "narrow": np.ones(2, jnp.bfloat16)}  # fmt: skip
    found = unpack(*pack(tree), tree)
    for name, leaf in tree.items():
        assert type(found[name]) is type(leaf), name
        assert np.asarray(found[name]).dtype == np.asarray(leaf).dtype, name
        np.testing.assert_array_equal(found[name], leaf, name)
