"""The results in the repository, and the page that is made of them."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taciturn.paper import figures, page, tables
from taciturn.paper.experiments import EMNIST, EXPERIMENTS, SHAKESPEARE, THRESHOLDS
from taciturn.studies import figure
from taciturn.studies.results import read
from taciturn.studies.table import Spread

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"


def committed(*experiments):
    return {e.name: read(e, RESULTS) for e in experiments}


def test_the_page_is_what_its_files_say():
    assert (DOCS / "results.md").read_text("utf-8") == page.make(RESULTS, Path("results"))


def test_upload_of_full_communication_to_the_digit():
    for experiment, gib in ((EMNIST, "4.49"), (SHAKESPEARE, "3.06")):
        result = read(experiment, RESULTS)
        assert {f"{value:.2f}" for value in result.gib("full", 100)} == {gib}


def test_shakespeare_as_printed():
    result = read(SHAKESPEARE, RESULTS)
    assert abs(result.arms["full"].at(100).mean() - 22.86) < 1.5
    assert result.arms["random ou"].at(100).mean() < 10


def test_five_seeds_of_every_arm():
    for name in {e.name for recipe in tables.TABLES.values() for e in recipe.needs}:
        result = read(EXPERIMENTS[name], RESULTS)
        assert list(result.arms) == list(EXPERIMENTS[name].arms)
        assert {len(arm.accuracy) for arm in result.arms.values()} == {5}


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_written_for_people_and_programs(name, tmp_path):
    recipe = tables.TABLES[name]
    table = recipe.make(committed(*recipe.needs))
    csv, markdown = table.write(tmp_path, name)
    rows = csv.read_text().splitlines()
    assert len(rows) == 1 + len(table.rows)
    assert markdown.read_text().startswith(table.title)


NAMES = ("ou", "zero", "ignore", "ou constrained")


def expected(name, results):
    """Label of the y axis, and a title and (label, x, y) of every line for each panel."""
    if name.startswith("fixed"):
        (result,) = results.values()
        lines = {
            f"τ = {threshold:g}": [(n, result.arms[f"{threshold} {n}"]) for n in NAMES]
            for threshold in THRESHOLDS
        }
        if name == "fixed-accuracy":
            label, of = "test accuracy, %", lambda arm: (arm.tested, arm.accuracy)
        else:
            label = f"clients that upload, of {result.cohort}"
            of = lambda arm: (np.arange(1, result.rounds + 1), arm.spoke)  # noqa: E731
        return label, {t: [(n, *of(arm)) for n, arm in own] for t, own in lines.items()}
    arms = ["full", *(f"{rule} {n}" for rule in ("adaptive", "random") for n in NAMES)]
    panels = {}
    for result in results.values():
        if name == "accuracy":
            label, upto = "test accuracy, %", 100
            lines = [(n, result.arms[n]) for n in arms]
            lines = [
                (n, arm.tested[arm.tested <= upto], arm.accuracy[:, arm.tested <= upto])
                for n, arm in lines
            ]
        elif name == "upload":
            label = "uploaded since the start, GiB"
            tests = range(5, 101, 5)
            lines = [
                (n, np.array(tests), np.stack([result.gib(n, t) for t in tests], 1)) for n in arms
            ]
        else:
            label = "threshold"
            lines = [
                (n, np.arange(2, 101), result.arms[f"adaptive {n}"].threshold[:, 1:100])
                for n in NAMES
            ]
        panels[result.experiment.title] = lines
    return label, panels


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_show_the_committed_numbers(name):
    recipe = figures.FIGURES[name]
    results = committed(*recipe.needs)
    drawn = recipe.make(results)
    label, panels = expected(name, results)
    assert drawn.axes[0].get_ylabel() == label
    assert [axes.get_title() for axes in drawn.axes] == list(panels)
    for axes, lines in zip(drawn.axes, panels.values(), strict=True):
        assert axes.get_xlabel() == "round"
        found = axes.get_lines()
        assert [line.get_label() for line in found] == [line[0] for line in lines]
        for line, shade, (_, x, y) in zip(found, axes.collections, lines, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), x)
            np.testing.assert_allclose(line.get_ydata(), y.mean(0))
            outline = np.concatenate([path.vertices for path in shade.get_paths()])[:, 1]
            assert (outline.min(), outline.max()) == pytest.approx((np.nanmin(y), np.nanmax(y)))
        assert len({(line.get_color(), repr(line._dash_pattern)) for line in found}) == len(lines)
    (legend,) = drawn.legends
    first = next(iter(panels.values()))
    assert [text.get_text() for text in legend.get_texts()] == [line[0] for line in first]


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


def test_the_readme_quotes_them():
    result = read(SHAKESPEARE, RESULTS)
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    for arm in ("full", "adaptive ou constrained"):
        assert str(Spread(result.arms[arm].at(100))) in readme


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("TACITURN_DATA"), reason="no real data")
def test_what_a_blank_reaches():
    shakespeare = importlib.import_module("taciturn.data.shakespeare")
    tokens = shakespeare.read().test["y"]
    counts = np.bincount(tokens[tokens != shakespeare.PADDING])
    assert shakespeare.CHARACTERS[counts.argmax() - 1] == " "
    share = f"{100 * counts.max() / counts.sum():.2f} %"
    assert share in page.make(RESULTS, Path("results"))
    assert share in (DOCS.parent / "README.md").read_text("utf-8")
