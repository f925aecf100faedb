"""Experiments are run piece by piece, and nothing is run twice."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from experiments.common import pieces
from experiments.common.experiment import Experiment, Setting, partner
from experiments.common.pieces import Options
from experiments.common.results import content
from experiments.common.results_file import describe
from experiments.paper.experiments import SYNTHETIC
from taciturn.errors import InputError, RunError
from taciturn.report import terminal
from taciturn.runs import claimed
from taciturn.tasks import load

ARMS = {
    "full": "full", "adaptive zero": "adaptive+zero", "adaptive ignore": "adaptive+ignore",
    "random zero": "random:?+zero",
}  # fmt: skip
FEW = replace(SYNTHETIC, arms=ARMS, seeds=2, seeds_of={})


def run(options, experiment=FEW, seeds=None, rounds=3):
    return experiment.run(options, lambda line: None, seeds, rounds)


def kept(options, key="runs"):
    return json.loads((options.folder / "synthetic.json").read_text())[key]


def runs_of(result):
    return {name: arm.runs for name, arm in result.arms.items()}


@pytest.fixture
def options(tmp_path):
    return Options(tmp_path)


def test_what_is_there_is_not_run_again(options, counted):
    first = run(options)
    assert runs_of(run(options)) == runs_of(FEW.read(options.folder)) == runs_of(first)
    run(options, seeds=1)
    assert len(counted) == 4  # the matched arm after the others, and one seed at a time on a CPU
    assert {run["seed"] for run in kept(options)} == {0, 1}  # fewer seeds remove nothing
    path = options.folder / "synthetic.json"
    with claimed(options.folder), pytest.raises(RunError, match="is in use: another process"):
        run(options)
    path.write_text('{"runs": []}')
    with pytest.raises(RunError, match="file of results"):
        content(path)


@pytest.mark.usefixtures("every_round_is_saved")
def test_a_command_that_was_stopped_goes_on_where_it_was(options, monkeypatch):
    one = replace(FEW, arms={"full": "full"})
    real, told = terminal.Live.__call__, []

    def tell(self, record):
        real(self, record)
        told.append(record)
        if len(told) == 6:  # in the second piece; the first told of a program and three rounds
            raise KeyboardInterrupt

    monkeypatch.setattr(terminal.Live, "__call__", tell)
    with pytest.raises(KeyboardInterrupt):
        run(options, one)
    (piece,) = (path for path in options.folder.iterdir() if path.is_dir())
    assert (piece / "metrics.csv").exists()
    assert len(kept(options, "pieces")) == 1
    run(options, one)
    assert len(kept(options, "pieces")) == 2
    assert {path.name for path in options.folder.iterdir()} == {".running.lock", "synthetic.json"}


def test_random_speaks_at_the_rate_of_its_partner(options, counted, monkeypatch):
    monkeypatch.setattr("experiments.common.experiment.NEAR", 0.1)

    def probability(result):
        return float(re.match(r"random:([\d.]+)", result.arms["random zero"].policy)[1])

    first = run(options)
    spoke = first.arms[partner("random zero")].figure("spoke")
    assert probability(first) == pytest.approx(spoke.mean() / first.cohort, abs=1e-4)
    assert probability(run(options, seeds=3)) == probability(first)
    path = options.folder / "synthetic.json"
    content = json.loads(path.read_text())
    for one in content["runs"]:
        if one["arm"] == "adaptive zero":
            one["spoke"] = [8] * 3
    path.write_text(json.dumps(content))
    again = run(options, seeds=3)
    assert (probability(again), again.arms["random zero"].seeds) == (0.8, (0, 1, 2))


def test_some_arms_have_other_numbers_of_seeds(options, counted):
    experiment = replace(FEW, seeds=1, seeds_of={"full": 3, "random zero": 2})
    assert experiment.missing(options.folder)["full"] == 3
    count = {name: len(arm.seeds) for name, arm in run(options, experiment).arms.items()}
    assert count == dict.fromkeys(ARMS, 1) | {"full": 3, "random zero": 2}
    assert experiment.missing(options.folder) == {}
    more = replace(experiment, seeds=2)
    assert more.missing(options.folder) == {"adaptive zero": 1, "adaptive ignore": 1}


def test_what_has_changed_is_run_again_and_not_mixed_with_what_was(options, counted):
    run(options, seeds=3)
    counted.clear()
    changed = replace(FEW, arms=ARMS | {"adaptive ignore": "adaptive+zero"})
    result = run(options, changed, seeds=2)
    assert [arms for arms, _ in counted] == [["adaptive ignore"]] * 2
    assert result.arms["adaptive ignore"].seeds == (0, 1)
    own = [one["policy"] for one in kept(options) if one["arm"] == "adaptive ignore"]
    assert sorted(own) == ["adaptive+ignore", "adaptive+zero", "adaptive+zero"]
    run(options._replace(again=("full",)), changed, seeds=1)
    assert counted[-1] == (["full"], (0,))


def test_other_settings_and_other_data_are_refused(options, counted, monkeypatch):
    run(options, seeds=1)
    with pytest.raises(RunError, match="rounds"):
        run(options, seeds=2, rounds=4)
    monkeypatch.setattr(pieces, "load", lambda name, **given: load(name, seed=1))
    with pytest.raises(RunError, match="sha256"):
        run(options, seeds=2)


def test_an_arm_with_settings_of_its_own_is_a_piece_of_its_own(options, counted):
    def chosen(choice, said):
        settings = {name: Setting(n, "Few.") for name, n in (("rounds", 2), ("cohort", 3))}
        experiment = Experiment(
            "synthetic", "S", "synthetic", settings | {"evaluate_every": Setting(1, "Few.")},
            {"full": "full", "chosen": "full"}, seeds=1, own={"chosen": {"choice": choice}},
        )  # fmt: skip
        return experiment.run(options, said.append)

    said = []
    found = chosen(9, said)
    assert counted == [(["full"], (0,)), (["chosen"], (0,))]
    extra = found.arms["chosen"].uploaded - found.arms["full"].uploaded
    np.testing.assert_array_equal(extra, [[9 * 24, 18 * 24]])
    chosen(8, said)
    assert len(counted) == 3  # other settings replace what was there
    assert [one.get("settings") for one in kept(options)] == [None, {"choice": 8}]
    chosen(101, said)
    assert said[-1].startswith("S: chosen left out: `choice` must be at least the cohort of 3")
    shared = replace(FEW, name="other", settings={**FEW.settings, "batch": Setting(-1, "Wrong.")})
    with pytest.raises(InputError, match="`batch`"):
        run(options, shared)


def test_what_a_constant_answer_reaches_leaves_padding_out():
    task = load("synthetic")
    labels = np.array([[3, 3, 0, 0], [3, 5, 0, 0]], np.int32)
    tests = {"x": np.zeros((2, 100), np.float32), "y": labels}
    assert describe(replace(task, test=tests))["constant"] == 75
    assert describe(replace(task, test=tests | {"y": labels[0]}))["constant"] == 50
