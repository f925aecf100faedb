"""`taciturn compare`, configuration files, sweeps, `taciturn runs`, and what a run gives back."""

from __future__ import annotations

import json
import math
import os
import signal
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from test_resume import assert_same_files, when_two_rounds_are_told

import taciturn as package
from taciturn import runs
from taciturn.errors import InputError, UnknownName
from taciturn.settings import Plan, points, read_values
from taciturn.sim import checkpoint, engine
from taciturn.studies.difference import difference
from taciturn.summary import noise_floor, summarise
from taciturn.tasks import load

ARMS = ["full", "random:0.5+ignore"]
SMALL = ["synthetic", "--rounds", "3", "--cohort", "3"]


def test_arms_are_compared_seed_by_seed_with_the_first(taciturn: Any) -> None:
    options = ["compare", *SMALL, "--arms", "; ".join(ARMS), "--seeds", "3"]
    code, out, _ = taciturn(*options, "--out", "a")
    assert code == 0
    histories = package.compare(
        "synthetic", {arm: arm for arm in ARMS}, rounds=3, cohort=3, seeds=3
    )
    summary = runs.read_json(Path("a/summary.json"))
    assert list(summary["arms"]) == ARMS
    found = {arm: summary["arms"][arm]["accuracy"] for arm in ARMS}
    for arm, history in histories.items():
        assert found[arm] == pytest.approx((100 * history.accuracy[:, -1]).tolist())
    wanted = difference(np.array(found[ARMS[1]]), np.array(found[ARMS[0]]))
    assert summary["arms"][ARMS[1]]["difference"] == pytest.approx(wanted._asdict())
    assert "difference" not in summary["arms"][ARMS[0]]
    line = next(line for line in out.splitlines() if line.startswith(ARMS[1]))
    assert f"{wanted.mean:+.2f} ± {wanted.half:.2f}" in line
    assert "half of its 95 % interval" in out

    # The report says the same of the same run.
    code, shown, _ = taciturn("report", "a")
    assert code == 0
    again = next(line for line in shown.splitlines() if line.startswith(ARMS[1]))
    figures = summary["arms"][ARMS[1]]
    for text in (
        f"{figures['accuracy_mean']:.2f} ± {figures['accuracy_std']:.2f} %",
        f"{figures['spoke_share']:.1f} %",
        f"{figures['upload_share']:.3g} %",
    ):
        assert text in line
        assert text in again


def test_the_noise_floor_is_measured_and_reported(
    taciturn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["compare", *SMALL, "--arms", "; ".join(ARMS), "--seeds", "2", "--noise-floor"]
    code, out, _ = taciturn(*options, "--out", "a")
    assert code == 0
    arms = {arm: arm for arm in ARMS}
    lr = float(np.nextafter(np.float32(load("synthetic").lr), np.float32(1)))
    one, other = (package.compare("synthetic", arms, rounds=3, cohort=3, seeds=2, **rate)
                  for rate in ({}, {"lr": lr}))  # fmt: skip
    summary = runs.read_json(Path("a/summary.json"))
    for arm in ARMS:
        apart = 100 * np.abs(one[arm].accuracy[:, -1] - other[arm].accuracy[:, -1])
        wanted = {"mean": apart.mean(), "most": apart.max()}
        assert summary["arms"][arm]["noise_floor"] == pytest.approx(wanted, abs=1e-4)
    norms = [[float(row["norm_mean"]) for row in runs.read_csv(Path(folder, "metrics.csv"))]
             for folder in ("a", "a/nudged")]  # fmt: skip
    assert norms[0] != norms[1]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert not list(Path("a").rglob("checkpoint-*"))
    # The report has the row, and the configuration measures it again.
    (row,) = (line for line in out.splitlines() if line.startswith("noise floor"))
    assert row in taciturn("report", "a")[1].splitlines()
    assert "noise floor" in Path("a/report.html").read_text()
    assert tomllib.loads(Path("a/config.toml").read_text())["noise_floor"] is True
    # Stopped while it is measured, a run goes on there.
    Path("a/report.html").unlink()
    monkeypatch.setattr(engine, "_CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_LONGEST", 0.0)
    twice = [os.getpid()] * 2
    when_two_rounds_are_told(
        monkeypatch, lambda: [os.kill(p, signal.SIGINT) for p in twice], of=f"{ARMS[1]} (nudged)"
    )
    assert taciturn(*options, "--out", "b")[0] == 130
    assert list(Path("b/nudged").glob("checkpoint-*"))
    assert taciturn("resume", "b")[0] == 0
    assert_same_files(Path("a"), Path("b"))


def test_a_noise_floor_is_how_far_seeds_lie_apart() -> None:
    assert noise_floor([50.0, 60.0], [49.0, 63.0]) == {"mean": 2.0, "most": 3.0}


def test_the_folders_own_configuration_runs_the_same_again(taciturn: Any) -> None:
    options = ["--arms", ARMS[1], "--clip", "inf", "--seeds", "4", "2"]
    assert taciturn("compare", *SMALL, *options, "--out", "a")[0] == 0
    config = tomllib.loads(Path("a/config.toml").read_text())
    assert (config["arms"], config["seeds"], config["task"]) == (ARMS[1], [4, 2], "synthetic")
    assert config["devices"] == len(jax.devices())
    for command in ("compare", "run"):
        assert taciturn(command, "--config", "a/config.toml", "--out", command)[0] == 0
        assert_same_files(Path(command), Path("a"))


def test_what_is_given_counts_more_than_the_file(taciturn: Any) -> None:
    Path("c.toml").write_text('task = "glyphs"\nrounds = 9\nseeds = [1, 2]\nlr = 0.3\n')
    code, out, _ = taciturn(
        "run", *SMALL, "--config", "c.toml", "--policy", "full", "--seed", "7", "--json"
    )
    assert code == 0
    summary = json.loads(out)
    assert (summary["task"], summary["rounds"], summary["seeds"]) == ("synthetic", 3, [7])
    config = tomllib.loads((Path(summary["run"]) / "config.toml").read_text())
    assert config["lr"] == 0.3


def names_in(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir() if not path.name.startswith(".")}


def test_a_sweep_has_a_folder_for_every_point_and_goes_on(
    taciturn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*SMALL, "--policy", "full", "--sweep", "lr=0.1,0.3"]
    code, out, _ = taciturn("run", *options, "--out", "a")
    assert code == 0
    assert [line for line in out.splitlines() if "lr=" in line]
    names = {"config.toml", "summary.json", "lr=0.1", "lr=0.3"}
    assert names_in("a") == names
    assert tomllib.loads(Path("a/config.toml").read_text())["lr"] == [0.1, 0.3]
    single = package.simulate("synthetic", "full", rounds=3, cohort=3, lr=0.3)
    points = runs.read_json(Path("a/summary.json"))["points"]
    assert points["lr=0.3"]["accuracy_mean"] == pytest.approx(100 * single.accuracy[0, -1])

    # A list in a file is the same; stopped in the first point, it goes on with all.
    monkeypatch.setattr(engine, "_CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_LONGEST", 0.0)
    twice = [os.getpid()] * 2
    when_two_rounds_are_told(monkeypatch, lambda: [os.kill(p, signal.SIGINT) for p in twice])
    code, _, err = taciturn("run", "--config", "a/config.toml", "--out", "b")
    assert (code, err.splitlines()[-1]) == (130, "taciturn: Stopped. `taciturn resume b` goes on.")
    assert names_in("b") == {"config.toml", "lr=0.1"}
    assert taciturn("resume", "b")[0] == 0
    for point in ("lr=0.1", "lr=0.3"):
        assert_same_files(Path("a", point), Path("b", point))
    assert names_in("b") == names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare"], "`taciturn compare` needs policies, such as `--arms"),
        (["compare", "--arms", "full; full"], "The policy full is there twice."),
        (
            ["compare", "--arms", "full, adaptive+ou"],
            "Arguments are written key=value, got ` adaptive` in `full, adaptive`. Policies are "
            "separated by semicolons.",
        ),
        (["compare", "--arms", "full; ful"], "There is no rule, stand-in or codec called `ful`."),
        (["run", "--sweep", "lr"], "A sweep is written name=value,value of a setting, got `lr`."),
        (["run", "--sweep", "seeds=1,2"], "A sweep is written name=value,value of a setting"),
        (["run", "--sweep", "lr=x"], "`lr` must be a number, got 'x'."),
        (["run", "--sweep", "rat=1"], "There is no setting called `rat`."),
        (["run", "--config", "no.toml"], "no.toml cannot be used: "),
    ],
)
def test_what_cannot_be_run_is_one_line(taciturn: Any, arguments: list[str], message: str) -> None:
    code, out, err = taciturn(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"taciturn: {message}")
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_values_have_the_types_of_the_plan() -> None:
    found = read_values({"lr": 1, "rounds": 3.0, "seeds": [2, 1], "data": "x", "cohort": [3, "4"]})
    assert found == {"lr": 1.0, "rounds": 3, "seeds": (2, 1), "data": Path("x"), "cohort": [3, 4]}
    assert isinstance(found["lr"], float)
    assert list(points(found)) == ["cohort=3", "cohort=4"]
    assert points({"rounds": 3}) == {"": {"rounds": 3}}
    for bad in (
        {"rounds": 2.5}, {"lr": []}, {"lr": None}, {"seeds": "a"}, {"seeds": [1.5]}, {"task": 1},
        {"lr": False}, {"lr": True}, {"plain": 1}, {"seeds": [False, 1]}, {"cohort": math.inf},
    ):  # fmt: skip
        with pytest.raises(InputError):
            read_values(bad)
    assert Plan(**read_values({"task": "idx"})).task == "idx"


def test_runs_are_listed_with_their_state(taciturn: Any) -> None:
    code, _, err = taciturn("runs")
    assert (code, err) == (1, "taciturn: runs is not a folder: `taciturn run` makes runs/.\n")
    Path("runs/none").mkdir(parents=True)
    assert taciturn("runs")[1] == "There are no runs in runs.\n"
    assert taciturn("run", *SMALL, "--policy", "full", "--out", "runs/done")[0] == 0
    config = Path("runs/done/config.toml").read_text()
    for name in ("stopped", "running", "federation"):
        Path("runs", name).mkdir()
    for name in ("stopped", "running"):
        Path("runs", name, "config.toml").write_text(config)
    Path("runs/stopped/checkpoint-12.safetensors").write_text("")
    Path("runs/federation/state.json").write_text('{"policy": "adaptive+ou", "round": 4}')
    with runs.claimed(Path("runs/running")):
        code, out, _ = taciturn("runs")
    assert code == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()}
    accuracy = runs.read_json(Path("runs/done/summary.json"))["accuracy_mean"]
    assert lines["runs/done"] == f"synthetic complete full {accuracy:.2f} % 100 %"
    assert lines["runs/stopped"] == "synthetic stopped at 12 full"
    assert lines["runs/running"] == "synthetic running full"
    assert lines["runs/federation"] == "flower after round 4 adaptive+ou"
    assert "runs/none" not in lines
    # The oldest first, whatever was written into their folders later.
    for age, name in enumerate(("running", "done", "stopped")):
        os.utime(Path("runs", name, "config.toml"), (age, age))
    Path("runs/running/report.html").touch()
    shown = [line.split()[0] for line in taciturn("runs")[1].splitlines()]
    assert shown[1:] == ["runs/running", "runs/done", "runs/stopped", "runs/federation"]


def test_every_policy_of_a_run_is_listed(taciturn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert taciturn("run", *SMALL, "--arms", "; ".join(ARMS), "--out", "runs/a")[0] == 0
    arms = runs.read_json(Path("runs/a/summary.json"))["arms"]
    assert len({arm["upload_share"] for arm in arms.values()}) > 1
    monkeypatch.setenv("COLUMNS", "120")
    head, *lines = taciturn("runs")[1].splitlines()
    assert head.split() == ["run", "task", "state", "policy", "accuracy", "of", "full"]
    for line, (name, arm) in zip(lines, arms.items(), strict=True):
        assert line.split()[-5:-1] == [name, f"{arm['accuracy_mean']:.2f}", "%",
                                       f"{arm['upload_share']:.3g}"]  # fmt: skip
    assert lines[0].startswith("runs/a ")
    assert not lines[1][:20].strip()
    monkeypatch.setenv("COLUMNS", "50")  # the share is left out before names are cut
    assert taciturn("runs")[1].splitlines()[0].split()[-1] == "accuracy"


def test_the_model_comes_back(taciturn: Any) -> None:
    options = ["--arms", "; ".join(ARMS), "--seeds", "4", "2"]
    assert taciturn("compare", *SMALL, *options, "--out", "a")[0] == 0
    task = load("synthetic")
    histories = package.compare(task, {arm: arm for arm in ARMS}, rounds=3, cohort=3, seeds=(4, 2))

    def flat(model: Any) -> np.ndarray:
        return np.asarray(jax.flatten_util.ravel_pytree(model)[0])

    model = package.load_model("a")  # the first that is not full communication, the lowest seed
    np.testing.assert_array_equal(flat(model), histories[ARMS[1]].weights[1])
    other = package.load_model("a", arm="full", seed=4, task=task)
    np.testing.assert_array_equal(flat(other), histories["full"].weights[0])
    right, one = task.metrics(model, task.test)["accuracy"]
    expected = histories[ARMS[1]].accuracy[1, -1]
    assert float(right.sum() / one.sum()) == pytest.approx(expected)
    with pytest.raises(UnknownName, match="no arm called `ful`"):
        package.load_model("a", arm="ful")
    with pytest.raises(InputError, match=r"`seed` must be one of \[2, 4\], got 3"):
        package.load_model("a", seed=3)
    with pytest.raises(InputError, match="The model of `glyphs` has other arrays"):
        package.load_model("a", task=load("glyphs"))


@pytest.fixture(scope="module")
def history() -> package.History:
    return package.simulate("synthetic", "adaptive+ou", rounds=3, cohort=3, seeds=(4, 2))


def test_a_history_as_a_frame_of_pandas(history: package.History) -> None:
    pytest.importorskip("pandas")
    frame = history.to_pandas()
    assert list(frame.columns[:3]) == ["arm", "seed", "round"]
    assert frame["round"].tolist() == [1, 2, 3] * 2
    for row, wanted in zip(frame.to_dict("records"), history.rows(), strict=True):
        assert {key: value for key, value in row.items() if key != "arm"} == pytest.approx(
            wanted, nan_ok=True
        )


def test_a_summary_knows_what_was_not_measured() -> None:
    one = np.ones((2, 3))
    columns = {"accuracy": one * np.nan, "spoke": one, "threshold": one * np.inf, "asked": 4 * one,
               "bytes_up": 10 * one, "overhead_up": one, "bytes_up_full": 0 * one}  # fmt: skip
    assert summarise(columns) == {
        "accuracy": [], "accuracy_mean": None, "accuracy_std": None, "worst_tenth": None,
        "loss_mean": None, "spoke_share": 25.0, "rejected_share": None,
        "upload_bytes": 30.0, "upload_overhead_bytes": 3.0, "upload_share": None,
        "download_share": None, "traffic_bytes": None, "traffic_share": None,
        "threshold_mean": None,
    }  # fmt: skip
    # The last test counts, wherever it was, and one seed has no deviation.
    columns["accuracy"] = np.array([[0.1, 0.5, np.nan]])
    found = summarise({name: column[:1] for name, column in columns.items()})
    assert (found["accuracy"], found["accuracy_std"]) == ([50.0], None)
