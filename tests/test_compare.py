"""`taciturn compare`, configuration files, sweeps, `taciturn runs`, and what a run gives back."""

import math
import os
import shutil
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from test_resume import assert_same_files, stop_after_two_rounds

import taciturn as package
from taciturn import cli, runs
from taciturn.errors import InputError, RunError
from taciturn.report import series
from taciturn.report.units import score_text
from taciturn.settings import points, read_values
from taciturn.summary import difference, noise_floor, summarise
from taciturn.tasks import load

ARMS = ["full", "random:0.5+ignore"]
SMALL = ["synthetic", "--rounds", "3", "--cohort", "3"]
GIVEN = {"rounds": 3, "cohort": 3, "clip": math.inf, "seeds": (4, 2)}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of a comparison."""
    folder = tmp_path_factory.mktemp("compared") / "a"
    options = ["--arms", "; ".join(ARMS), "--clip", "inf", "--seeds", "4", "2", "--quiet"]
    cli.main(["compare", *SMALL, *options, "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def histories():
    """The same comparison in Python."""
    return package.compare("synthetic", {arm: arm for arm in ARMS}, **GIVEN)


def test_arms_are_compared_seed_by_seed_with_the_first(taciturn, compared, histories):
    arms = runs.read_json(compared / "summary.json")["arms"]
    assert list(arms) == ARMS
    found = {arm: figures["accuracy"] for arm, figures in arms.items()}
    for arm, history in histories.items():
        assert found[arm] == pytest.approx((100 * history.accuracy[:, -1]).tolist())
    figures = arms[ARMS[1]]
    wanted = difference(np.array(found[ARMS[1]]), np.array(found[ARMS[0]]))
    assert figures["difference"] == pytest.approx(wanted._asdict())
    assert "difference" not in arms[ARMS[0]]
    # What is shown at the end, and the report of the same run, say the same.
    for shown in (taciturn("resume", str(compared))[1],
                  taciturn("report", str(compared), "-o", "x.html")[1]):  # fmt: skip
        assert "half of its 95 % interval" in shown
        line = next(line for line in shown.splitlines() if line.startswith(ARMS[1]))
        for text in (
            f"{wanted.mean:+.2f} ± {wanted.half:.2f}",
            f"{figures['accuracy_mean']:.2f} ± {figures['accuracy_std']:.2f} %",
            f"{figures['spoke_share']:.1f} %",
            f"{figures['upload_share']:.3g} %",
        ):
            assert text in line


def test_a_difference_is_the_mean_and_students_interval():
    found = difference([3.0, 4.0, 8.0], [2.0, 4.0, 6.0])
    assert found == pytest.approx((1.0, 4.302653 / np.sqrt(3)))
    assert str(difference([3.0], [4.0])) == "-1.00"
    assert noise_floor([3.0, 4.0], [2.5, 5.0]) == {"mean": 0.75, "most": 1}


@pytest.mark.usefixtures("every_round_is_saved")
def test_the_noise_floor_is_measured_and_reported(taciturn, monkeypatch):
    options = ["compare", *SMALL, "--arms", "; ".join(ARMS), "--seeds", "2", "--noise-floor"]
    code, out, _ = taciturn(*options, "--out", "a")
    assert code == 0
    one, other = (series.read(Path(folder)) for folder in ("a", "a/nudged"))
    summary = runs.read_json(Path("a/summary.json"))
    for arm in ARMS:
        plain, nudged = one[arm], other[f"{arm} (nudged)"]
        wanted = noise_floor(100 * plain["accuracy"][:, -1], 100 * nudged["accuracy"][:, -1])
        assert summary["arms"][arm]["noise_floor"] == pytest.approx(wanted, abs=1e-4)
        assert (nudged["norm_mean"] != plain["norm_mean"]).any()
        np.testing.assert_allclose(nudged["norm_mean"], plain["norm_mean"], rtol=1e-5)
    assert not list(Path("a").rglob("checkpoint-*"))
    # The report has the row, and the configuration measures it again.
    (row,) = (line for line in out.splitlines() if line.startswith("noise floor"))
    assert row in taciturn("report", "a")[1].splitlines()
    assert tomllib.loads(Path("a/config.toml").read_text())["noise_floor"] is True
    # Stopped while it is measured, a run goes on there.
    Path("a/report.html").unlink()
    stop_after_two_rounds(monkeypatch, times=2, of=f"{ARMS[1]} (nudged)")
    assert taciturn(*options, "--out", "b")[0] == 130
    assert list(Path("b/nudged").glob("checkpoint-*"))
    assert taciturn("resume", "b")[0] == 0
    assert_same_files(Path("a"), Path("b"))


def test_the_folders_own_configuration_runs_the_same_again(taciturn, compared):
    Path("c").mkdir()  # of a run that was stopped before its first checkpoint
    shutil.copy(compared / "config.toml", "c")
    assert taciturn("resume", "c")[0] == 0
    assert_same_files(Path("c"), compared)


def names_in(folder):
    return {path.name for path in Path(folder).iterdir() if not path.name.startswith(".")}


@pytest.mark.usefixtures("every_round_is_saved")
def test_a_sweep_has_a_folder_for_every_point_and_goes_on(taciturn, monkeypatch):
    options = [*SMALL, "--policy", "full", "--sweep", "lr=0.1,0.3"]
    code, out, _ = taciturn("run", *options, "--out", "a")
    assert code == 0
    assert [line for line in out.splitlines() if "lr=" in line]
    names = {"config.toml", "summary.json", "lr=0.1", "lr=0.3"}
    assert names_in("a") == names
    assert tomllib.loads(Path("a/config.toml").read_text())["lr"] == [0.1, 0.3]
    points = runs.read_json(Path("a/summary.json"))["points"]
    assert points["lr=0.3"] == runs.read_json(Path("a/lr=0.3/summary.json"))

    # A list in a file is the same; stopped in the first point, it goes on with all.
    stop_after_two_rounds(monkeypatch, times=2)
    code, _, err = taciturn("run", "--config", "a/config.toml", "--out", "b")
    assert (code, err.splitlines()[-1]) == (130, "taciturn: Stopped. `taciturn resume b` goes on.")
    assert names_in("b") == {"config.toml", "lr=0.1"}
    assert taciturn("resume", "b")[0] == 0
    for point in ("lr=0.1", "lr=0.3"):
        assert_same_files(Path("a", point), Path("b", point))
    assert names_in("b") == names


def test_values_have_the_types_of_the_plan():
    found = read_values({"lr": 1, "rounds": 3.0, "seeds": [2, 1], "data": "x", "cohort": [3, "4"]})
    assert found == {"lr": 1.0, "rounds": 3, "seeds": (2, 1), "data": Path("x"), "cohort": [3, 4]}
    assert isinstance(found["lr"], float)
    assert list(points(found)) == ["cohort=3", "cohort=4"]
    for bad in (
        {"rounds": 2.5}, {"lr": []}, {"lr": None}, {"seeds": "a"}, {"seeds": [1.5]}, {"task": 1},
        {"lr": False}, {"plain": 1}, {"seeds": [False, 1]}, {"cohort": math.inf},
    ):  # fmt: skip
        with pytest.raises(InputError):
            read_values(bad)


def test_runs_are_listed_with_their_state(taciturn, compared, monkeypatch):
    Path("runs/none").mkdir(parents=True)
    assert taciturn("runs")[1] == "There are no runs in runs.\n"
    shutil.copytree(compared, "runs/done")
    config = Path("runs/done/config.toml").read_text().replace("; ".join(ARMS), "full")
    for name in ("stopped", "running", "federation"):
        Path("runs", name).mkdir()
    for age, name in enumerate(("running", "stopped")):
        Path("runs", name, "config.toml").write_text(config)
        os.utime(Path("runs", name, "config.toml"), (age, age))
    Path("runs/running/report.html").touch()  # no later run for that
    Path("runs/stopped/checkpoint-12.safetensors").write_text("")
    Path("runs/federation/state.json").write_text(
        '{"task": "flower", "policy": "adaptive+ou", "round": 4}'
    )
    with runs.claimed(Path("runs/running")):
        code, out, _ = taciturn("runs")
    assert code == 0
    arms = runs.read_json(Path("runs/done/summary.json"))["arms"].values()
    full, part = (f"{score_text(arm)} {arm['upload_share']:.3g} %" for arm in arms)
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "run task state arm accuracy of full",
        "runs/running synthetic running full",
        "runs/stopped synthetic stopped at 12 full",
        f"runs/done synthetic complete full {full}",
        f"{ARMS[1]} {part}",
        "runs/federation flower after round 4 adaptive+ou",
    ]
    text = config.replace("rounds = 3", "rounds = 5").replace("lr_decay = 1.0", "lr_decay = 0.5")
    Path("runs/stopped/config.toml").write_text(text)
    monkeypatch.setenv("COLUMNS", "40")  # the share is left out, and no name is cut
    head, *lines = taciturn("runs")[1].splitlines()
    assert head.split() == ["run", "task", "state", "settings", "arm", "accuracy"]
    cells = " ".join(lines).split()
    for name in ("runs/federation", "rounds=3,", "rounds=5,", "lr_decay=0.5", "random:0.5"):
        assert name in cells


def test_the_model_comes_back(compared, histories, tmp_path):
    task = load("synthetic")
    expected = histories[ARMS[1]].weights[1], histories["full"].weights[0]
    # By default the first that is not full communication, and the lowest seed.
    models = (package.load_model(compared),
              package.load_model(compared, arm="full", seed=4, task=task))  # fmt: skip
    for model, weights in zip(models, expected, strict=True):
        np.testing.assert_array_equal(jax.flatten_util.ravel_pytree(model)[0], weights)
    for wrong, message in (
        ({"arm": "ful"}, "no arm called `ful`"),
        ({"seed": 3}, r"`seed` must be one of \[2, 4\], got 3"),
        ({"task": load("glyphs")}, "The model of `glyphs` has other arrays"),
    ):
        with pytest.raises(InputError, match=message):
            package.load_model(compared, **wrong)
    shutil.copy(compared / "config.toml", tmp_path)
    with pytest.raises(RunError, match="was stopped before its end"):
        package.load_model(tmp_path)


def test_a_history_as_a_frame_of_pandas(histories):
    pytest.importorskip("pandas")
    history = histories[ARMS[1]]
    frame = history.to_pandas()
    assert list(frame.columns[:3]) == ["arm", "seed", "round"]
    last = frame[frame["round"] == 3]["accuracy"]
    assert last.tolist() == pytest.approx(history.summary()["accuracy"])
    rows = frame.drop(columns="arm").to_dict("records")
    assert rows == [pytest.approx(row, nan_ok=True) for row in history.rows()]


def test_a_summary_knows_what_was_not_measured():
    one = np.ones((2, 3))
    columns = {"accuracy": one * np.nan, "loss": one * np.nan, "spoke": one, "rejected": 0 * one,
               "threshold": one * np.inf, "asked": 4 * one, "bytes_up": 10 * one,
               "overhead_up": one, "bytes_up_full": 0 * one, "bytes_down": 8 * one,
               "overhead_down": one, "bytes_down_full": 18 * one}  # fmt: skip
    assert summarise(columns) == {
        "accuracy": [], "accuracy_mean": None, "accuracy_std": None, "worst_tenth": None,
        "loss_mean": None, "spoke_share": 25.0, "rejected_share": 0.0,
        "upload_bytes": 30.0, "upload_overhead_bytes": 3.0, "upload_share": None,
        "download_share": 50.0, "traffic_bytes": 60.0, "traffic_share": 100 * 20 / 18,
        "threshold_mean": None,
    }  # fmt: skip
    # The last test counts, wherever it was, and one seed has no deviation.
    columns["accuracy"] = np.array([[0.1, 0.5, np.nan]])
    found = summarise({name: column[:1] for name, column in columns.items()})
    assert (found["accuracy"], found["accuracy_std"]) == ([50.0], None)
