"""What tables make of runs, and what of the README they write."""

import numpy as np
import pytest

from experiments.common.command import fill, markdown
from experiments.common.results import Arm, Results
from experiments.paper import measures, tables
from experiments.paper.__main__ import STUDY
from experiments.paper.experiments import AUTHORS, EMNIST, NUMERICS, SHAKESPEARE
from taciturn.report.table import Spread, Table


def result(experiment=EMNIST, constant=None, **ends):
    """Runs of one test after 100 rounds, with thresholds that are their seed from round 2 on."""
    arms = {}
    for name, accuracy in ends.items():
        seeds = range(len(accuracy))
        runs = [{"threshold": [0.0] + [seed] * 99, "rejected": 7} for seed in seeds]
        arms[name.replace("_", " ")] = Arm(
            "full", tuple(seeds), np.array([100]), np.array(accuracy, float)[:, None],
            np.full((len(accuracy), 1), 2_000_000), runs,
        )  # fmt: skip
    data = {} if constant is None else {"constant": constant}
    settings = {"rounds": 100, "cohort": 10}
    return Results(experiment, settings, 1000, arms, [], data)


def test_a_run_has_collapsed_far_below_full_or_at_a_constant_answer():
    found = result(full=[80, 70, 80], adaptive_ou=[74.9, 65.1, 75.1])
    assert measures.collapsed(found, "adaptive ou").tolist() == [True, False, False]
    ends = {"full": [22, 22, 19.4, 18.6], "adaptive_ou": [19.4, 19.6, 18.5, 18.5]}
    assert not measures.collapsed(result(**ends), "adaptive ou").any()  # within five points
    # No more than a point above the constant answer; above that; full is 0.9 and 0.1 above it.
    known = result(constant=18.5, **ends)
    assert measures.collapsed(known, "adaptive ou").tolist() == [True, False, False, False]


def test_differences_are_means_or_signs_where_a_run_collapsed():
    found = result(full=[80] * 8, adaptive_ou=[81, 82, 81, 82, 81, 82, 5, 5],
                   adaptive_zero=[80, 80, 80.5, 80, 80, 80.5])  # fmt: skip
    both = measures.compared(found, "adaptive zero", "full")
    assert both == "+0.17 ± 0.27, n = 6"
    signs = measures.compared(found, "adaptive ou", "full")
    assert signs == "+1.00, 6 of 8, p = 0.29"


def test_the_main_table_has_rows_for_what_was_run_and_marks_those_of_float32():
    authors = f"adaptive_{AUTHORS.replace(' ', '_')}"
    found = {
        EMNIST.name: result(full=[80, 81], adaptive_ou=[70, 71]),
        NUMERICS[0].name: result(full=[80, 80], **{authors: [79, 60]}),
        SHAKESPEARE.name: result(SHAKESPEARE, full=[22, 22]),
    }
    made = {row[0]: row[1:] for row in tables.main(found).rows}
    assert list(made) == ["full", "adaptive ou, authors'", "adaptive ou, exact"]
    assert made["adaptive ou, authors'"][0].endswith(" †")
    assert made["adaptive ou, authors'"][1:3] == (69.67, "1 of 2")
    assert made["adaptive ou, exact"][2] == "2 of 2"
    assert float(str(made["full"][3]).split()[0]) == pytest.approx(49.7)  # of 10 × 100 × 4,024 B
    assert float(str(measures.mean_threshold(found["emnist"], "adaptive ou")[1])) == 1


def test_a_table_is_written_with_its_deviations_and_between_its_marks(tmp_path):
    table = Table("T", ("a", "b"), [("x", Spread(np.array([1.0, 3.0]))), ("y", 4)])
    path = table.write(tmp_path / "t.csv")
    assert path.read_text() == 'a,b,"b, deviation"\nx,2,1.41421\ny,4,\n'
    page = "head\n<!-- table: t -->\nold\n<!-- end -->\ntail <!-- table: other -->\n"
    filled = fill(page, {"t": table, "u": table})
    assert filled == page.replace("old\n", markdown(table))
    assert fill(filled, {"t": table}) == filled


def test_the_command_line(capsys, tmp_path, counted):
    out = ["--out", str(tmp_path)]
    STUDY.main(["run", "synthetic", "--rounds", "2", "--seeds", "1", *out])
    STUDY.main(["list", *out])
    assert "synthetic: Synthetic, 11 arms, seeds missing of full: 19" in capsys.readouterr().out
    STUDY.main(["table", *out])
    STUDY.main(["figure", "accuracy", *out])
    names = {path.name for path in tmp_path.iterdir()}
    assert {"table-synthetic.csv", "figure-accuracy.png", "figure-accuracy.svg"} <= names
    assert "table-main.csv" not in names
    with pytest.raises(SystemExit):
        STUDY.main(["table", "mian", *out])
