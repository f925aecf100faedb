"""The command line: exit codes, one line an error, and what a run leaves behind."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

from taciturn import runs, studies
from taciturn.cli import _COMMANDS
from taciturn.settings import Settings

SMALL = ["synthetic", "--rounds", "2", "--cohort", "3"]


def test_a_run_leaves_its_folder_and_prints_one_json_object(taciturn):
    policy = "random:0.5+ignore"
    options = ("run", *SMALL, "--policy", policy, "--seeds", "3", "5", "--json", "--out", "there")
    code, out, _ = taciturn(*options)
    assert code == 0
    summary = json.loads(out)
    assert out.count("\n") == 1
    assert summary == summary | {
        "task": "synthetic", "run": "there", "rule": "random:0.5", "stand_in": "ignore",
        "codec": "float32", "rounds": 2, "cohort": 3, "seeds": [3, 5], "threshold_mean": None,
    }  # fmt: skip
    assert summary["accuracy_mean"] == pytest.approx(np.mean(summary["accuracy"]))
    assert summary["upload_overhead_bytes"] == 2 * 3 * 24
    assert summary["upload_bytes"] == pytest.approx(summary["spoke_share"] / 100 * 6 * 101 * 4)
    assert list(summary["arms"]) == ["full", policy]
    assert summary["arms"]["full"]["upload_share"] == 100
    assert summary["arms"][policy]["accuracy"] == summary["accuracy"]

    folder = Path("there")
    assert (folder / "report.png").exists()
    assert runs.read_json(folder / "summary.json") == summary
    config = tomllib.loads((folder / "config.toml").read_text("utf-8"))
    assert config | {"arms": f"full; {policy}", "task": "synthetic", "devices": len(jax.devices()),
                     "rounds": 2, "cohort": 3, "seeds": [3, 5], "batch": 20, "epochs": 1,
                     "lr": 0.1, "clip": 1.0} == config  # fmt: skip
    rows = runs.read_csv(folder / "metrics.csv")
    assert {(r["arm"], r["seed"], r["round"]) for r in rows} == {
        (arm, seed, t) for arm in (policy, "full") for seed in "35" for t in "12"
    }
    weights = runs.read_arrays(folder / "weights.safetensors")
    assert sorted(array.shape for array in weights.values()) == [()] * 4 + [(100,)] * 4
    assert taciturn(*options)[0] == 1  # the folder is in use now


def test_a_run_for_people_shows_a_table_and_says_when_no_reply_counts(taciturn):
    code, out, _ = taciturn("run", *SMALL, "--rule", "fixed:0.1", "--lr", "1e30", "--no-baseline")
    assert code == 0
    lines = out.splitlines()
    assert "nothing learned" in next(line for line in lines if line.startswith("fixed:0.1+ou "))
    assert "Tested on 2,000 examples that came as a test set." in lines
    assert "100 % of the replies had numbers that are not finite" in out
    (folder,) = Path("runs").glob("synthetic-*")
    assert lines[-1] == f"Results are in {folder}"
    assert runs.read_json(folder / "summary.json")["rejected_share"] == 100
    assert "nothing learned" in taciturn("report", str(folder))[1]


def test_a_table_goes_from_file_to_comparison(taciturn):
    """Its path may have spaces."""
    rows = [f"{who},{i % 2},{i % 2 + 0.1 * who},{i}" for who in range(4) for i in range(20)]
    Path("my data").mkdir()
    Path("my data/a b.csv").write_text("\n".join(["who,y,a,time", *rows]))
    asked = "--client who --label y --leave-out time --standardise --option hidden=3"
    asked += " --rounds 2 --cohort 2 --no-baseline"
    where = ("--data", "my data/a b.csv", "--out", "my run")
    code, out, err = taciturn("run", "table", *where, *asked.split())
    assert code == 0, err
    assert "Tested on a tenth of each client's rows, at random by label." in out
    config = tomllib.loads(Path("my run/config.toml").read_text("utf-8"))
    given = {"client": "who", "leave_out": ["time"], "standardise": True, "option": ["hidden=3"]}
    assert config == config | given
    code, again, err = taciturn("run", "--config", "my run/config.toml", "--out", "y", "--json")
    assert code == 0, err
    assert json.loads(again)["accuracy"] == runs.read_json(Path("my run/summary.json"))["accuracy"]


@pytest.fixture
def asked(taciturn, monkeypatch):
    """A function that returns the values of the plan that a command would run."""
    monkeypatch.setattr(studies, "start", lambda values, *_: (Path("runs"), values))
    return lambda *options: json.loads(taciturn("run", *SMALL, *options, "--json")[1])


def test_which_policies_run(asked):
    """The paper's and the recommended one, or a budget alone."""
    assert asked()["arms"] == "full; adaptive+ou; budget"
    assert asked("--budget", "4kB,per=run")["arms"] == "full; budget:4kB,per=run"


def test_what_is_given_counts_more_than_the_file(asked):
    Path("c.toml").write_text('task = "glyphs"\nrounds = 9\nseeds = [1, 2]\nlr = 0.3\n')
    found = asked("--config", "c.toml", "--policy", "full", "--seed", "7")
    wanted = {"task": "synthetic", "rounds": 2, "seed": 7, "seeds": Settings.seeds, "lr": 0.3}
    assert found | wanted == found


def test_help_names_commands_and_options(taciturn):
    _, out, _ = taciturn("--help")
    assert "Train federatedly with clients that stay silent, beside" in out
    assert "Stand-ins:" not in out  # a sentence for each command, no more
    _, out, _ = taciturn("run", "--help-all")
    for text in ("--rule STR", "--seeds INT …", "--no-baseline", "--option TEXT …", "Stand-ins:"):
        assert text in out
    assert "None" not in out
    # Lines are as long as there is room, whatever they are in the source.
    assert "only a part of its local steps, drawn" in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("command", ["", *_COMMANDS])
def test_help_fits_a_screen(command, taciturn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = taciturn(*command.split(), "--help")[1].splitlines()
    assert sum(1 + len(line) // 101 for line in lines) <= 45


def test_as_a_program_with_and_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "taciturn", "run", "--rule", "fixd:1"]
    plain, debug = (
        subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
        for line in (command, [*command, "--debug"])
    )
    assert plain.returncode == debug.returncode == 1
    assert plain.stderr == "taciturn: There is no rule called `fixd`. Did you mean `fixed`?\n"
    assert "Traceback" in debug.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_is_no_error():
    """As `taciturn list | head` does: nobody reads what is written."""
    command = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1); "
    command += "sys.argv = ['taciturn', 'list']; from taciturn.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
