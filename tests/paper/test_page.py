"""The results in the repository, and the page that is made of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taciturn.errors import RunError
from taciturn.paper import claims, figures, page, reading, tables, words
from taciturn.paper.comparing import collapsed
from taciturn.paper.experiments import EMNIST, EXPERIMENTS, MAIN, SHAKESPEARE, SYNTHETIC, THRESHOLDS
from taciturn.studies import figure
from taciturn.studies.results import results_of

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
NAMES = ("ou", "ou constrained", "zero", "ignore")


@pytest.fixture(scope="module")
def committed():
    return reading.there(RESULTS)


@pytest.fixture(scope="module")
def made_up():
    """Every experiment, with numbers of no meaning; `ou` collapses in every third seed."""
    return {name: made_up_result(experiment) for name, experiment in EXPERIMENTS.items()}


def made_up_result(experiment):
    rng = np.random.default_rng(len(experiment.name))
    rounds, cohort, every = 100, 10, 20
    tested = list(range(every, rounds + 1, every))
    runs = []
    for arm, text in experiment.arms.items():
        for seed in range(3):
            collapses = text.endswith("mode=paper") and seed == 2
            end = 10 if collapses else 70 + rng.normal()
            spoke = rng.integers(1, cohort + 1, rounds)
            sent = np.cumsum(spoke)[np.array(tested) - 1] * 1000
            runs.append({
                "arm": arm, "policy": text.replace("?", "0.5"), "seed": seed, "tested": tested,
                "accuracy": [end * t / rounds for t in tested], "uploaded": sent.tolist(),
                "spoke": spoke.tolist(), "rejected": 7,
                "threshold": [0.0, *rng.uniform(0.1, 2, rounds - 1)] if "adap" in text else None,
            })  # fmt: skip
    settings = {"rounds": rounds, "cohort": cohort, "precision": "float32"}
    device = {"device": "1 × test", "python": "3", "jax": "0", "numpy": "2"}
    data = {"clients": 405, "examples": 59_725, "tests": 10, "sha256": "0" * 64, "constant": 18.5}
    return results_of(experiment, {
        "settings": settings, "weights": 250, "runs": runs, "data": data,
        "pieces": [{"arms": ["full"], "seeds": [0, 2], "seconds": 9.0, "versions": device}],
    })  # fmt: skip


def test_the_page_is_what_its_files_say():
    assert (DOCS / "results.md").read_text("utf-8") == page.make(RESULTS, Path("results"))


def test_upload_of_full_communication_to_the_digit(committed):
    for experiment, gib in ((EMNIST, "4.49"), (SHAKESPEARE, "3.06")):
        if experiment.name in committed:
            result = committed[experiment.name]
            assert {f"{value:.2f}" for value in result.gib("full", 100)} == {gib}


def test_shakespeare_as_printed(committed):
    result = committed[SHAKESPEARE.name]
    assert abs(result.arms["full"].at(100).mean() - 22.86) < 1.5
    assert result.arms["random ou"].at(100).mean() < 10


def test_emnist_as_printed(committed):
    if EMNIST.name not in committed:
        pytest.skip("not run yet")
    result = committed[EMNIST.name]
    assert abs(result.arms["full"].at(100).mean() - 76.51) < 2
    assert abs(tables.thresholds_after_first(result, "adaptive zero").mean() - 0.459) < 0.06


def test_other_settings_are_not_taken_for_those_of_the_experiment(tmp_path):
    has = json.loads((RESULTS / "shakespeare.json").read_text())
    has["settings"]["lr"] = 0.3
    (tmp_path / "shakespeare.json").write_text(json.dumps(has))
    with pytest.raises(RunError, match=r"0\.3"):
        reading.there(tmp_path)


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_written_for_people_and_programs(name, tmp_path, made_up):
    recipe = tables.TABLES[name]
    table = recipe.make({e.name: made_up[e.name] for e in recipe.needs})
    csv, markdown = table.write(tmp_path, name)
    rows = csv.read_text().splitlines()
    assert len(rows) == 1 + len(table.rows)
    assert markdown.read_text().startswith(table.title)
    assert tables.NOT_RUN not in csv.read_text()
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_main_table_has_what_the_runs_have(made_up):
    result = made_up[EMNIST.name]
    rows = {row[0]: row for row in tables.main_of(result).rows}
    assert list(rows) == list(EMNIST.arms)
    own = rows["adaptive ou"]
    assert own[1] == 3
    np.testing.assert_array_equal(own[2].values, result.arms["adaptive ou"].at(100))
    assert own[3] == 69.67
    assert own[5] == "1 of 3"
    assert own[-1] == "0.7 %"  # 7 of 100 rounds of 10
    assert rows["random unweighted ou constrained"][3] == 69.58


def test_what_is_not_run_is_said_so(made_up):
    result = made_up[EMNIST.name]
    without = result._replace(arms={"full": result.arms["full"]})
    rows = {row[0]: row for row in tables.main_of(without).rows}
    assert rows["adaptive ou"][2] == tables.NOT_RUN
    assert tables.NOT_RUN in tables.clients({}).markdown()
    assert tables.NOT_RUN in tables.emnist_settings({}).markdown()


def test_collapses_are_counted_with_their_interval(made_up):
    table = tables.collapses({e.name: made_up[e.name] for e in MAIN})
    (row,) = [row for row in table.rows if row[:2] == ("EMNIST", "adaptive ou")]
    assert row[2:4] == ("1 of 3", "1 to 91 %")  # Clopper and Pearson
    assert ("EMNIST, float32", "adaptive ou", tables.NOT_RUN, None, None) in table.rows


def test_every_verdict_can_be_counted_from_the_page():
    text = (DOCS / "results.md").read_text("utf-8")
    results = reading.there(RESULTS)
    measured = reading.measured_paths(RESULTS)["measured"]
    judged = 0
    for number, claim in enumerate(claims.claims(results, measured), 1):
        start = text.index(f"#### {number}. {claim.text}\n")
        section = re.split(r"\n#{2,4} ", text[start:])[0]
        said = re.findall(r"\| (yes|no|undecided|not run) \|\n", section)
        assert claim.yes_of_all == f"{said.count('yes')} of {len(said)}"
        assert f"**{claim.verdict}**" in section
        judged += claim.verdict != "not run"
    assert judged > 10


def test_sentences_come_from_the_numbers(made_up):
    result = made_up[SHAKESPEARE.name]
    accuracy = np.tile([18.5, 18.5, 18.4, 22.0, 22.5], (3, 1))
    arms = {name: result.arms[name] for name in ("full", "adaptive zero", "random zero")}
    arms = {name: arm._replace(accuracy=accuracy) for name, arm in arms.items()}
    stuck = arms["random zero"]._replace(accuracy=np.full((3, 5), 18.5))
    level = arms["adaptive zero"]._replace(threshold=np.full((3, 100), 0.75))
    arms |= {"random zero": stuck, "adaptive zero": level}
    result = result._replace(size=820_522, arms=arms)
    results = {SHAKESPEARE.name: result}
    told = words.plateau(results)
    assert "reaches 18.50 %" in told
    assert "after 80 to 80 rounds; `random zero` end on it" in told
    fits = words.fits(results, "shakespeare")
    assert "accuracy: `shakespeare`; threshold: `shakespeare`; share: none" in fits
    assert "`full` ends 0.36 points below the printed accuracy" in words.apart(results)
    assert "405 clients with 59,725 training rows" in words.whose(result)
    assert words.missing(results, [SHAKESPEARE.name]) == ""
    assert "`taciturn paper run emnist,fixed`" in words.missing(results, ["emnist", "fixed"])


def test_no_number_of_our_data_is_written_in_code():
    source = Path(page.__file__).parent
    text = "".join(path.read_text("utf-8") for path in source.glob("*.py"))
    for literal in ("405", "59,725", "59725", "eighth", "18.56", "60 to 90", "3,400"):
        assert literal not in text, literal


def lines_of(axes):
    """The lines that have a name, without the thin ones of single seeds."""
    return {line.get_label(): line for line in axes.get_lines() if line.get_label()[0] != "_"}


def test_curves_are_medians_with_every_seed_where_a_run_collapsed(made_up):
    shown = {e.name: made_up[e.name] for e in (EMNIST, SYNTHETIC)}
    drawn = figures.accuracy(shown)
    arms = ["full", *(f"{rule} {n}" for rule in ("adaptive", "random") for n in NAMES)]
    for column, result in enumerate(shown.values()):
        for axes in (drawn.axes[column], drawn.axes[column + 2]):
            lines = lines_of(axes)
            assert list(lines) == arms
            thin = len(axes.get_lines()) - len(lines)
            assert thin == 3 * sum(collapsed(result, n, 100).any() for n in arms) > 0
            for name, line in lines.items():
                arm = result.arms[name]
                np.testing.assert_array_equal(line.get_xdata(), arm.tested)
                np.testing.assert_allclose(line.get_ydata(), np.median(arm.accuracy, 0))
            looks = {(line.get_color(), repr(line._dash_pattern)) for line in lines.values()}
            assert len(looks) == len(arms)
            assert 100 in axes.get_xticks()
        assert drawn.axes[column].get_title() == result.experiment.title
    whole, zoom = drawn.axes[0], drawn.axes[2]
    assert zoom.get_ylim()[0] > 40  # `ou` fell to 10
    assert whole.get_ylim()[0] < 10
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == arms


def test_uploads_and_thresholds_are_drawn_as_they_are(made_up):
    shown = {e.name: made_up[e.name] for e in MAIN}
    sent, tau = figures.upload(shown), figures.thresholds(shown)
    for axes, result in zip(sent.axes, shown.values(), strict=True):
        for name, line in lines_of(axes).items():
            np.testing.assert_allclose(
                line.get_ydata(), np.median(result.arms[name].uploaded, 0) / 2**30
            )
    for axes, result in zip(tau.axes, shown.values(), strict=True):
        assert axes.get_yscale() == "log"
        lines = lines_of(axes)
        assert list(lines) == list(NAMES)
        for name, line in lines.items():
            path = result.arms[f"adaptive {name}"].threshold[:, 1:100]
            np.testing.assert_array_equal(line.get_xdata(), np.arange(2, 101))
            np.testing.assert_allclose(line.get_ydata(), np.median(path, 0))


@pytest.mark.parametrize("name", ["fixed-accuracy", "fixed-upload"])
def test_fixed_thresholds_have_a_panel_each(name, made_up):
    result = made_up["fixed"]
    drawn = figures.FIGURES[name].make({"fixed": result})
    assert [axes.get_title() for axes in drawn.axes] == [f"τ = {t:g}" for t in THRESHOLDS]
    for axes, threshold in zip(drawn.axes, THRESHOLDS, strict=True):
        for stand_in, line in lines_of(axes).items():
            arm = result.arms[f"{threshold} {stand_in}"]
            y = arm.accuracy if name == "fixed-accuracy" else arm.spoke
            np.testing.assert_allclose(line.get_ydata(), np.median(y, 0))


def test_accuracy_against_bytes_has_all_arms(made_up):
    result = made_up[EMNIST.name]
    drawn = figures.against_bytes({EMNIST.name: result})
    points, bars = drawn.axes
    assert len(points.collections) == 2 * len(EMNIST.arms)  # every seed, and medians
    assert points.get_ylim()[0] > 60
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert names[::-1] == list(EMNIST.arms)
    goal = tables.TARGET * np.median(result.arms["full"].at(100))
    widths = {names[round(bar.get_y() + bar.get_height() / 2)]: bar.get_width()
              for bar in bars.patches}  # fmt: skip
    reached = {n: tables.bytes_to(result, n, float(goal)) for n in EMNIST.arms}
    assert {n: s / 2**30 for n, s in reached.items() if s is not None} == pytest.approx(widths)


def test_a_figure_is_written_as_a_picture_and_as_a_page_without_a_time(tmp_path):
    drawn, (axes,) = figure.panels(1, "round", width=5.0)
    axes.plot([1, 2], [3, 4], color="#D55E00", lw=9)
    png, pdf = figure.write(drawn, tmp_path / "new", "name")
    assert (png.name, pdf.name) == ("name.png", "name.pdf")
    with Image.open(png) as picture:
        assert (picture.format, picture.size) == ("PNG", (650, 546))  # 5 × 4.2 inches at 130
        assert not picture.info.get("Software")
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert (pixels == (0xD5, 0x5E, 0x00)).all(1).sum() > 1000
    page = pdf.read_bytes()
    assert page.startswith(b"%PDF")
    assert page.rstrip().endswith(b"%%EOF")
    assert b"CreationDate" not in page


def test_the_readme_says_what_the_files_say(committed):
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    section = readme[readme.index("## The paper's results") :].partition("\n## ")[0]
    assert "EMNIST is a subset" in section
    arm, own = "adaptive ou constrained", committed[SHAKESPEARE.name]
    assert f"on Shakespeare {own.share(arm, 100).mean():.0f} % of the upload" in section
    assert abs(own.gap(arm, "full", 100).mean) < 0.5
    result = committed.get(EMNIST.name, committed["emnist-e1-b20"])
    arms = ("random ignore", "adaptive ou")
    if all(arm in result.arms for arm in arms):
        medians = [np.median(result.arms[arm].at(100)) for arm in arms]
        assert ("`random ignore` ends above `adaptive ou`" in section) == (medians[0] > medians[1])
