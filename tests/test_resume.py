"""`taciturn resume`: runs that were stopped, killed or ran out of disk."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_cli import SMALL

from taciturn import cli, runs
from taciturn.core import policy
from taciturn.progress import Progress
from taciturn.report import terminal

pytestmark = pytest.mark.usefixtures("every_round_is_saved")
OPTIONS = [*SMALL[:1], "--cohort", "3", "--rounds", "4", "--rule", "random:0.5"]
SAME = ("config.toml", "metrics.csv", "weights.safetensors", "report.png")


def stop_after_two_rounds(monkeypatch, number=signal.SIGINT, times=1, of=None):
    """Sends signals, once, when a run has told two rounds, or two of an arm."""
    real, left = terminal.Live.__call__, [number] * times

    def tell(self, record):
        real(self, record)
        if isinstance(record, Progress) and record.round == 2 and of in (None, record.arm):
            while left:
                os.kill(os.getpid(), left.pop())

    monkeypatch.setattr(terminal.Live, "__call__", tell)


def assert_same_files(one, other):
    for name in SAME:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    summaries = [runs.read_json(folder / "summary.json") for folder in (one, other)]
    for summary in summaries:
        for figures in (summary, *summary["arms"].values()):
            del figures["seconds_per_round"]
        del summary["run"]
    assert summaries[0] == summaries[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole") / "whole"
    cli.main(["run", *OPTIONS, "--quiet", "--out", str(folder)])
    return folder


def test_a_run_that_is_stopped_says_how_to_go_on_and_does(taciturn, whole, monkeypatch):
    stop_after_two_rounds(monkeypatch, signal.SIGTERM)
    code, out, err = taciturn("run", *OPTIONS, "--out", "a")
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert err.endswith("taciturn: Stopped after round 3. `taciturn resume a` goes on.\n")
    assert len(runs.read_csv(Path("a/metrics.csv"))) == 2 * 3  # what was done can be looked at
    code, out, _ = taciturn("resume", "a")
    assert code == 0
    assert out.endswith("Results are in a\n")
    assert_same_files(Path("a"), whole)

    Path("a/checkpoint-4.safetensors").write_text("killed before it was removed")
    code, again, err = taciturn("resume", "a")
    assert (code, again, err) == (0, out, "a is complete.\n")
    assert_same_files(Path("a"), whole)


@pytest.mark.parametrize("name", ["weights.safetensors", "summary.json"])
def test_a_full_disk_at_the_end_loses_nothing(name, taciturn, whole, monkeypatch):
    real = os.replace

    def full(source, target):
        if str(target).endswith(name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        code, _, err = taciturn("run", *OPTIONS, "--out", "a")
    assert code == 1
    assert err.splitlines()[-1] == (
        f"taciturn: a/{name} cannot be written: No space left on device. "
        "`taciturn resume a` goes on."
    )
    assert taciturn("resume", "a")[0] == 0
    assert_same_files(Path("a"), whole)


SCRIPT = """
import sys
from taciturn.sim import engine, checkpoint
engine._CHUNK_SECONDS = 0.0
checkpoint._LONGEST = 0.0
from taciturn.__main__ import main
main()
"""


@pytest.mark.slow
def test_killed_with_nine_again_and_again_it_ends_where_it_would_have(tmp_path):
    def process(*arguments):
        with open(tmp_path / "said", "wb") as said:
            command = [sys.executable, "-c", SCRIPT, *arguments]
            return subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said)

    options = [
        "synthetic", "--rounds", "60", "--cohort", "4", "--seeds", "2", "--evaluate-every", "7",
        "--server-optimizer", "adam", "--server-lr", "0.5", "--arms",
        "full; adaptive,k=0+ou+eden:0.5; random:0.5+last+quantize:2; fixed:0.2+ignore+top_k:0.1",
    ]  # fmt: skip
    assert process("run", *options, "--out", "whole").wait() == 0, (tmp_path / "said").read_text()
    rng, command, kills = np.random.default_rng(0), ["run", *options, "--out", "a"], 0
    table = tmp_path / "a" / "metrics.csv"
    while kills < 10:
        running = process(*command)
        seen = table.stat().st_size if table.exists() else 0
        while running.poll() is None and (not table.exists() or table.stat().st_size <= seen):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        running.kill()
        if running.wait() != -signal.SIGKILL:
            break
        kills += 1
        if (tmp_path / "a" / "config.toml").exists():
            command = ["resume", "a"]
    assert kills >= 5
    assert process(*command).wait() == 0, (tmp_path / "said").read_text()
    assert_same_files(tmp_path / "a", tmp_path / "whole")


def test_own_parts_are_imported_kept_and_not_changed_unseen(taciturn, loud, monkeypatch):
    loud("own.norm > context[0]")
    asked = ("run", *OPTIONS[:-2], "--import", "parts.py", "--policy", "loud,share=0.1+ignore")
    assert taciturn(*asked, "--out", "whole")[0] == 0
    stop_after_two_rounds(monkeypatch)
    assert taciturn(*asked, "--out", "a")[0] == 130
    policy.RULES.pop("loud")  # as in a new process
    Path("parts.py").unlink()
    kept = Path("a/imported/parts.py")
    text = kept.read_text()
    kept.write_text(text.replace("own.norm >", "own.norm <"))
    code, _, err = taciturn("resume", "a")
    assert code == 1
    assert "of another run: the arm loud,share=0.1+ignore is" in err
    kept.write_text(text)
    assert taciturn("resume", "a")[0] == 0
    assert_same_files(Path("whole"), Path("a"))
