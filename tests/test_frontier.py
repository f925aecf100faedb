"""`taciturn frontier`, and what it makes of runs."""

from pathlib import Path

import numpy as np
import pytest
from test_resume import stop_after_two_rounds

from taciturn import runs
from taciturn.core.policy import parse
from taciturn.frontier import folder, front
from taciturn.frontier.folder import GRID, SMALLER
from taciturn.frontier.front import Frontier, Scores
from taciturn.settings import read_config
from taciturn.tasks import load
from taciturn.tasks.task import with_test

FULL_BYTES = 10 * 10 * (4 * 1000 + 24)
SMALL = ("frontier", "synthetic", "--rounds", "3", "--seeds", "2", "--out", "a")


def comparisons():
    """The policies of those in the folder."""
    return [str(read_config(path)["arms"]) for path in sorted(Path("a").glob("*/config.toml"))]


def rows(path="a/table.csv"):
    return {row["policy"].strip("*"): row for row in runs.read_csv(Path(path))}


@pytest.mark.usefixtures("every_round_is_saved")
def test_a_call_finishes_what_was_stopped_and_adds_to_the_table(taciturn, monkeypatch):
    assert all(str(parse(text)) == text for text in (GRID | SMALLER).values())
    assert "power of choice" in taciturn("frontier", "list")[1]
    stop_after_two_rounds(monkeypatch, times=2)
    code, _, err = taciturn(*SMALL, "--policies", "random:0.5+ignore")
    assert (code, err.splitlines()[-1]) == (130, "taciturn: Stopped. The same command goes on.")
    code, out, err = taciturn(*SMALL, "--policies", "power of choice; random:0.5+ignore")
    assert (code, comparisons()) == (0, ["full; random:0.5+ignore", "full"])
    assert "random:0.5+ignore: round 1/3" not in err
    found = rows()
    assert set(found) == {"full", "power of choice", "random:0.5+ignore"}
    assert all(name in out for name in ("to 99 %", *found, "a/figure.png", "a/figure.svg"))
    own = runs.read_json(Path("a/1/summary.json"))["arms"]["random:0.5+ignore"]
    shown = found["random:0.5+ignore"]
    assert float(shown["accuracy %"]) == pytest.approx(own["accuracy_mean"], 1e-5)
    assert float(shown["upload %"]) == pytest.approx(own["upload_share"], 1e-5)
    assert float(found["power of choice"]["upload %"]) > 100  # losses are uploaded too
    assert taciturn(*SMALL, "--policies", "full")[0] == 0
    assert set(rows()) == set(found)  # what is there keeps its name
    code, _, err = taciturn(*SMALL, "--lr", "0.3")
    assert code == 1
    assert err.startswith("taciturn: a has other runs: lr is 0.1 there and 0.3 here. ")


def test_runs_of_a_part_that_did_something_else_are_not_shown(taciturn, loud):
    asked = (*SMALL, "--import", "parts.py", "--policies", "loud,share=0.1+ignore")
    for _ in range(2):
        loud("own.norm > context[0]")
        assert taciturn(*asked)[0] == 0
    loud("own.norm > 2 * context[0]")
    code, _, err = taciturn(*asked)
    assert (code, err.partition(" is ")[0]) == (
        1, "taciturn: a has other runs: the arm loud,share=0.1+ignore",
    )  # fmt: skip


def test_budgets_are_smaller_for_a_small_model_and_can_be_kept(taciturn, monkeypatch, caplog):
    monkeypatch.setattr(folder, "GRID", {"full": "full", "chosen": "full"})
    monkeypatch.setattr(folder, "OWN", {"chosen": {"choice": 101}})
    monkeypatch.setattr(folder, "SMALLER", {"budget:3%": "budget:3%"})
    code, *_ = taciturn(*SMALL)
    assert (code, comparisons()) == (0, ["full"])
    first, second = caplog.messages
    assert first.startswith("budget:3% is left out: the budget of 3% cannot be kept")
    assert second.startswith("chosen is left out: `choice` must be")


def test_another_files_results_are_never_shown(taciturn):
    """And numbers are scored by what is explained of them, which may be less than nothing."""
    y = 9 + np.random.default_rng(0).normal(size=240)
    table, other = Path("table.csv"), Path("other.csv")
    for path, shift in ((table, 0), (other, 1)):
        lines = [f"{i % 12},{i % 7},{one + shift:.3f}" for i, one in enumerate(y)]
        path.write_text("\n".join(["0,1,2", *lines]) + "\n")
    asked = ("frontier", "table", "--client", "0", "--label", "2", "--policies", "adaptive+ou",
             "--rounds", "2", "--seed", "1")  # fmt: skip
    assert taciturn(*asked, "--data", "table.csv")[0] == 0
    found = rows("frontier-results/table/table.csv")
    assert found.keys() == {"full", "silence, OU"}
    full = found["full"]
    task = load("table", data=table, client="0", label="2")
    summary = runs.read_json(Path("frontier-results/table/1/summary.json"))
    loss = summary["arms"]["full"]["loss_mean"]
    assert "difference" not in summary["arms"]["adaptive+ou"]  # of accuracies
    explained = 100 * (1 - loss / with_test(task)[1].examples["y"].var())
    assert float(full["explained variance %"]) == pytest.approx(explained, 1e-4)
    assert explained < 0
    assert "to 90 %" not in full
    code, out, err = taciturn(*asked, "--data", "other.csv")
    assert (code, out) == (1, "")
    assert "the checksum of the data is" in err
    assert "nosuch.csv" in taciturn(*asked, "--data", "nosuch.csv")[2]


def scores(share, end):
    """Three seeds that end at a score and a little about it, after a share of all bytes."""
    ends = end + np.array([-0.1, 0.0, 0.1])
    sent = np.array([[0.5, 1.0]] * 3) * share / 100 * FULL_BYTES
    return Scores((0, 1, 2), np.stack([ends - 3, ends], axis=1), sent)


def made(**policies):
    """Policies by their score and the share of all bytes."""
    ends = {"full": (80, 100)} | policies
    arms = {name: scores(share, end) for name, (end, share) in ends.items()}
    return Frontier("X", "accuracy", 10, arms)


def test_the_front_is_what_nobody_beats():
    ends = {"a": (2, 6), "b": (3, 5), "c": (1, 4), "as c": (1, 4)}
    found = Frontier("X", "accuracy", 10, {name: scores(*end) for name, end in ends.items()})
    front_of = {point.name for point in front.points(found) if point.on_front}
    assert front_of == {"a", "c", "as c"}


def test_a_row_has_the_gap_the_share_and_the_bytes_until_the_mean_gets_there():
    found = made(budget=(80, 1), rival=(79, 10))
    full, rival, budget = front.table(found).rows
    assert [row[0] for row in (full, rival, budget)] == ["full", "rival", "**budget**"]
    assert rival[2:6] == ("-1.00 ± 0.00", rival[3], "40.24 kB", None)
    assert str(rival[3]) == "10.0 ± 0.0"
    assert rival[6:] == ("20.12 kB", "20.12 kB", None)  # 72 and 76 of 80, and never 79.2
    seeds = found.arms["rival"]._replace(seeds=(1, 2, 3))
    assert str(found._replace(arms={**found.arms, "rival": seeds}).gap("rival")) == "-1.10 ± 0.00"


def test_the_picture_has_ten_policies_at_their_bytes_and_score():
    rivals = {f"r{i}": (79 - i, 10 + i) for i in range(10)}
    found = made(budget=(80, 1), low=(60, 0.3), **rivals)
    (axes,) = front.draw(found).axes
    marks = {tuple(line.get_xydata()[0]): line for line in axes.get_lines()
             if line.get_linestyle() == "None"}  # fmt: skip
    shown = {"full", "budget", "low", *(f"r{i}" for i in range(7))}
    ends = {p.uploaded: p.score for p in front.points(found) if p.name in shown}
    lowest = min(y for _, y in marks)  # what ends far below is a triangle at the lower edge
    assert set(marks) == {(sent, max(score, lowest)) for sent, score in ends.items()}
    assert len(axes.get_lines()) == len(marks) + 1  # and the front
    names = {t.get_text() for t in axes.texts} - {""}
    assert {"full", "budget", "low: 60.0 %"} < names
    assert len(names) == 10
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(box.count_overlaps(boxes[:i]) for i, box in enumerate(boxes))
    for line in marks.values():
        box = line.get_window_extent()
        assert all(axes.bbox.contains(*corner) for corner in box.padded(4).get_points())
    assert len(front.draw(found, trails=True).axes[0].get_lines()) == 2 * len(marks) + 1
