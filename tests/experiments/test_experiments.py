"""Experiments are run piece by piece, and nothing is run twice."""

import json
import re
from dataclasses import replace

import jax
import numpy as np
import pytest
from experiments.paper.experiments import EXPERIMENTS, SYNTHETIC

from taciturn.errors import RunError
from taciturn.report import terminal
from taciturn.sim import engine, journal
from taciturn.studies import pieces
from taciturn.studies.experiment import MATCHED, Setting, partner
from taciturn.studies.pieces import Options
from taciturn.studies.results import read
from taciturn.studies.results_file import ResultsFile, claimed, describe
from taciturn.tasks import load


@pytest.fixture
def options(tmp_path):
    return Options(tmp_path, seeds=2, rounds=3)


@pytest.fixture
def counted(monkeypatch):
    """The policies and seeds of every piece that is run."""
    calls = []
    inner = pieces.compare

    def compare(task, policies, **settings):
        calls.append((list(policies), settings["seeds"]))
        return inner(task, policies, **settings)

    monkeypatch.setattr(pieces, "compare", compare)
    return calls


def quiet(line: str) -> None:
    pass


def test_what_is_there_is_not_run_again(options, counted):
    first = pieces.run(SYNTHETIC, options, quiet)
    done = len(counted)
    assert done > 0
    again = pieces.run(SYNTHETIC, options, quiet)
    assert len(counted) == done
    for name, arm in first.arms.items():
        for one, other in zip(arm, again.arms[name], strict=True):
            jax.tree.map(np.testing.assert_array_equal, one, other)


def test_an_experiment_without_matched_arms_runs_on_a_gpu(options, counted, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    arms = {name: text for name, text in SYNTHETIC.arms.items() if MATCHED not in text}
    experiment = replace(SYNTHETIC, arms=arms, side_by_side=None)
    pieces.run(experiment, options._replace(precision="float32"), quiet)
    assert counted == [(list(arms), (0, 1))]


def test_a_file_has_one_writer_at_a_time(options):
    path = options.folder / f"{SYNTHETIC.name}.json"
    with claimed(path), pytest.raises(RunError, match="is in use: another process is adding"):
        pieces.run(SYNTHETIC, options, quiet)
    assert not path.with_suffix(".lock").exists()


def test_what_is_run_again_begins_anew(options, monkeypatch):
    pieces.run(SYNTHETIC, options, quiet)
    inner, begun = pieces._piece, []

    def piece(task, texts, seeds, settings, folder):
        begun.append(folder.exists())
        return inner(task, texts, seeds, settings, folder)

    real = ResultsFile.folder_of

    def left(self, *args):
        folder = real(self, *args)
        folder.mkdir()  # of a command that was stopped
        return folder

    monkeypatch.setattr(pieces, "_piece", piece)
    monkeypatch.setattr(ResultsFile, "folder_of", left)
    pieces.run(SYNTHETIC, options._replace(again=("full",)), quiet)
    assert begun == [False] * options.seeds


def test_a_piece_that_was_stopped_goes_on_where_it_was(options, monkeypatch):
    wanted = pieces.run(SYNTHETIC, options, quiet)
    folder = options.folder / "again"
    options = options._replace(folder=folder)
    monkeypatch.setattr(engine, "_CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(journal, "_LONGEST", 0.0)
    real, told = terminal.Live.__call__, []

    def tell(self, record):
        real(self, record)
        told.append(record)
        if len(told) == 4:  # in the second round of the first piece
            raise KeyboardInterrupt

    monkeypatch.setattr(terminal.Live, "__call__", tell)
    with pytest.raises(KeyboardInterrupt):
        pieces.run(SYNTHETIC, options, quiet)
    (piece,) = folder.iterdir()
    assert (piece / "metrics.csv").exists()
    found = pieces.run(SYNTHETIC, options, quiet)
    assert [path.name for path in folder.iterdir()] == [f"{SYNTHETIC.name}.json"]
    for name, arm in wanted.arms.items():
        for one, other in zip(arm, found.arms[name], strict=True):
            jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_command_that_was_stopped_goes_on_where_it_was(options, counted, monkeypatch):
    real = pieces.compare

    def stop(task, policies, **settings):
        if len(counted) == 1:
            raise KeyboardInterrupt
        return real(task, policies, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(pieces, "compare", stop)
        with pytest.raises(KeyboardInterrupt):
            pieces.run(SYNTHETIC, options, quiet)
    kept = json.loads((options.folder / "synthetic.json").read_text())
    assert len(kept["pieces"]) == 1
    pieces.run(SYNTHETIC, options, quiet)
    assert counted[0] not in counted[1:]
    whole = read(SYNTHETIC, options.folder)
    assert {len(arm.accuracy) for arm in whole.arms.values()} == {2}


def test_more_seeds_run_only_what_they_change(options, counted):
    pieces.run(SYNTHETIC, options._replace(seeds=1), quiet)
    counted.clear()
    pieces.run(SYNTHETIC, options, quiet)
    adaptive = [name for name, text in SYNTHETIC.arms.items() if MATCHED not in text]
    assert [seeds for arms, seeds in counted if arms == adaptive] == [(1,)]


def test_random_speaks_at_the_mean_rate_of_its_partner(options):
    result = pieces.run(SYNTHETIC, options, quiet)
    matched = [name for name, text in SYNTHETIC.arms.items() if MATCHED in text]
    assert matched
    for name in matched:
        rate = result.arms[partner(name)].spoke.mean() / result.cohort
        _, _, value = result.arms[name].policy.partition("+")[0].partition(":")
        assert float(value) == pytest.approx(rate, abs=1e-4)


def test_files_of_other_settings_are_refused(options):
    pieces.run(SYNTHETIC, options, quiet)
    with pytest.raises(RunError, match="rounds"):
        pieces.run(SYNTHETIC, options._replace(rounds=4), quiet)


def test_reading_needs_the_file(tmp_path):
    with pytest.raises(RunError, match="has not been run"):
        read(SYNTHETIC, tmp_path)


def test_every_setting_has_a_reason():
    for experiment in EXPERIMENTS.values():
        for setting in (*experiment.options.values(), *experiment.settings.values()):
            assert setting.why.startswith(('"', "Open", "Ours", "Tried", "The code"))
            # What comes out is said by tables.
            assert not re.search("gives|stays|ends|reaches", setting.why)


def test_fewer_seeds_run_and_remove_nothing(options, counted):
    pieces.run(SYNTHETIC, options._replace(seeds=3), quiet)
    before = (options.folder / "synthetic.json").read_text()
    counted.clear()
    result = pieces.run(SYNTHETIC, options, quiet)
    assert counted == []
    assert (options.folder / "synthetic.json").read_text() == before
    assert {len(arm.accuracy) for arm in result.arms.values()} == {2}


def kept_runs(options):
    kept = json.loads((options.folder / "synthetic.json").read_text())["runs"]
    return {(run["arm"], run["seed"]): run for run in kept}


def test_a_matched_arm_stays_while_its_partner_has_fewer_seeds(options, counted):
    """As after `adaptive zero` was run again with two seeds only."""
    pieces.run(SYNTHETIC, options._replace(seeds=3), quiet)
    before = kept_runs(options)
    counted.clear()
    pieces.run(SYNTHETIC, options._replace(again=("adaptive zero",)), quiet)
    assert counted == [(["adaptive zero"], (0,)), (["adaptive zero"], (1,))]
    assert before.keys() - kept_runs(options).keys() == {("adaptive zero", 2)}
    assert kept_runs(options)["random zero", 0] == before["random zero", 0]


def test_runs_of_seeds_that_are_not_asked_for_stay_and_are_not_mixed_in(options):
    """As after an arm's policy has changed: two of its three seeds are run again."""
    arms = {"full": "full", "adaptive zero": "adaptive+zero", "random zero": "random:?+zero"}
    experiment = replace(SYNTHETIC, arms=arms)
    pieces.run(experiment, options._replace(seeds=3), quiet)
    before = kept_runs(options)
    changed = replace(experiment, arms=arms | {"random zero": "random:?+ignore"})
    result = pieces.run(changed, options._replace(seeds=2), quiet)
    after = kept_runs(options)
    assert after["random zero", 2] == before["random zero", 2]
    assert [after["random zero", seed]["policy"][-6:] for seed in (0, 1)] == ["ignore"] * 2
    assert read(changed, options.folder).arms["random zero"].seeds == (0, 1)
    assert result.arms["random zero"].seeds == (0, 1)
    again = replace(changed, arms=arms)  # its partner has fewer seeds now, but it has changed
    pieces.run(again, options._replace(seeds=1, again=("adaptive zero",)), quiet)
    assert kept_runs(options)["random zero", 0]["policy"].endswith("zero")


def test_some_arms_have_more_seeds_than_others(options, counted):
    experiment = replace(SYNTHETIC, seeds=1, more_seeds={"full": 3, "random zero": 2})
    result = pieces.run(experiment, options._replace(seeds=None), quiet)
    count = {name: len(arm.seeds) for name, arm in result.arms.items()}
    assert count == dict.fromkeys(SYNTHETIC.arms, 1) | {"full": 3, "random zero": 2}
    counted.clear()
    pieces.run(experiment, options._replace(seeds=None), quiet)
    assert counted == []


def test_the_file_names_data_devices_versions_and_rejected_clients(options):
    pieces.run(SYNTHETIC, options._replace(seeds=1), quiet)
    kept = json.loads((options.folder / "synthetic.json").read_text())
    assert {"clients", "examples", "tests", "sha256"} <= set(kept["data"])
    assert len(kept["pieces"]) > 1
    for piece in kept["pieces"]:
        assert {"device", "python", "jax", "numpy", "taciturn"} <= set(piece["versions"])
    assert {run["rejected"] for run in kept["runs"]} == {0}


def test_a_precision_of_the_experiment_holds_whatever_is_asked_for(options):
    exact = {**SYNTHETIC.settings, "precision": Setting("float32", "Ours.")}
    experiment = replace(SYNTHETIC, settings=exact, arms={"full": "full"})
    pieces.run(experiment, options._replace(precision="bfloat16"), quiet)
    kept = json.loads((options.folder / "synthetic.json").read_text())
    assert kept["settings"]["precision"] == "float32"


def test_what_a_constant_answer_reaches_leaves_padding_out():
    task = load("synthetic")
    labels = np.array([[3, 3, 0, 0], [3, 5, 0, 0]], np.int32)
    tests = {"x": np.zeros((2, 100), np.float32), "y": labels}
    assert describe(replace(task, test=tests))["constant"] == 75
    assert describe(replace(task, test=tests | {"y": labels[0]}))["constant"] == 50
    assert "constant" not in describe(task)  # its labels are numbers


def test_other_data_are_refused(options, monkeypatch):
    pieces.run(SYNTHETIC, options._replace(seeds=1), quiet)
    inner = pieces.load
    monkeypatch.setattr(pieces, "load", lambda name, **given: inner("glyphs"))
    with pytest.raises(RunError, match="examples"):
        pieces.run(SYNTHETIC, options, quiet)


@pytest.mark.parametrize("text", ["{}", "[]", '{"runs": []}'])
def test_what_is_no_file_of_results_is_named(options, text):
    (options.folder / "synthetic.json").write_text(text)
    with pytest.raises(RunError, match="file of results"):
        pieces.run(SYNTHETIC, options, quiet)
