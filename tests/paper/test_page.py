"""The results in the repository, and the page that is made of them."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

from taciturn.paper import figures, page, tables
from taciturn.paper.experiments import EMNIST, EXPERIMENTS, SHAKESPEARE
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


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_are_drawn(name, tmp_path):
    recipe = figures.FIGURES[name]
    png, pdf = figure.write(recipe.make(committed(*recipe.needs)), tmp_path, name)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


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
