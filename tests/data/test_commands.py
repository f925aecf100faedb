"""`taciturn data`: list, fetch, check, show, and the options of `run` that tasks take."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from made import images, write_emnist
from test_idx import write_set

from taciturn import cli
from taciturn.data.inventory import check, listing
from taciturn.errors import DataError, WriteError
from taciturn.report.task_plots import show
from taciturn.tasks import load
from taciturn.tasks.task import Stored, Task

ROOT = Path(__file__).parents[2]


def write_sums(folder):
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}"
        for path in sorted(folder.glob("*.h5"))
    ]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def test_the_list_says_what_is_there_and_what_is_missing(tmp_path, capsys):
    write_emnist(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.h5"))
    cli.main(["data", "list", "--data", str(tmp_path)])
    out = capsys.readouterr().out.splitlines()
    assert f"{size / 1e6:.1f} MB in {tmp_path}" in out[0]
    assert "missing; `taciturn data fetch shakespeare`" in out[1]
    assert any("flwrlabs/femnist" in line for line in out)
    assert any(line.startswith("glyphs") and "needs nothing" in line for line in out)
    assert listing(tmp_path) == out


def test_check_compares_with_what_was_published(tmp_path, capsys):
    write_emnist(tmp_path, {"f0": images(3), "f1": images(0)}, {"f0": images(2)})
    write_sums(tmp_path)
    cli.main(["data", "check", "emnist", "--data", str(tmp_path)])
    out = capsys.readouterr().out
    assert out.count(f"sha256 as in {tmp_path}/SHA256SUMS") == 2
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "clients 1 a part of the 3,400 published" in lines
    assert "train 3 a part of the 671,585 published" in lines
    assert "left out 1 clients without training examples" in lines


def test_check_notices_a_file_that_changed(tmp_path):
    write_emnist(tmp_path)
    write_sums(tmp_path)
    write_emnist(tmp_path, {"f0": images(4)})
    with pytest.raises(DataError, match=r"fed_emnist_train.h5 is not the file whose checksum"):
        check("emnist", tmp_path)


def test_check_reads_sums_of_the_folder_above(tmp_path):
    write_emnist(tmp_path / "emnist")
    (tmp_path / "SHA256SUMS").write_text("0" * 64 + "  emnist/fed_emnist_test.h5\n")
    with pytest.raises(DataError, match=r"fed_emnist_test.h5 is not the file"):
        check("emnist", tmp_path)


def test_check_knows_published_sums_of_single_files(tmp_path):
    write_set(tmp_path)
    lines = check("fashion", tmp_path)
    assert "packed otherwise than by the publisher" in lines[0]
    assert lines[4].split()[:2] == ["train", "60"]


def test_more_than_was_published_is_an_error(tmp_path):
    write_set(tmp_path, train=100, test=10_001)
    with pytest.raises(DataError, match="10,001 test, more than the 10,000 published"):
        check("fashion", tmp_path)


def picture(path):
    from PIL import Image

    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("L")).astype(int)


def test_show_draws_a_picture_of_the_data(tmp_path, capsys):
    write_emnist(tmp_path)
    out = tmp_path / "sheet.png"
    cli.main(["data", "show", "emnist", "--data", str(tmp_path), "--out", str(out)])
    assert capsys.readouterr().out.strip() == str(out)
    assert picture(out).shape == (700, 1300)


def test_show_puts_a_clients_examples_in_its_row(tmp_path):
    """Of two clients one is all white and one all black: one block of the sheet is ink."""
    x = np.zeros((6, 28, 28), np.float32)
    x[3:] = 1
    clients = Stored.of({"x": x, "y": np.arange(6)}, [3, 3])
    task = Task("two", clients, init=None, loss=None, metrics=None)
    ink = picture(show(task, tmp_path / "two.png"))[:, 60:850] < 10
    rows = np.flatnonzero(ink.sum(1) > 50)
    assert 20 < len(rows) < 60  # images are 0.03 of the sheet's width, and so is their height


@pytest.mark.parametrize("name", ["synthetic", "glyphs"])
def test_show_draws_embedded_tasks(tmp_path, name):
    assert picture(show(load(name), tmp_path / "a.png")).std() > 10


def test_show_draws_text(tmp_path):
    text = np.zeros((4, 80), np.uint8)
    text[:, :3] = [88, 14, 89]  # a `$` in it, which must not begin a formula
    text[:, 3] = 15
    arrays = {"x": text, "y": text}
    task = Task("shakespeare", Stored.of(arrays, [2, 2]), init=None, loss=None, metrics=None)
    assert picture(show(task, tmp_path / "a.png")).min() == 0


def test_show_names_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(WriteError, match=r"a\.png cannot be written"):
        show(load("synthetic"), tmp_path / "nowhere" / "a.png")


@pytest.mark.slow
def test_run_trains_on_files(tmp_path):
    write_emnist(tmp_path / "set")
    arguments = ["--rounds", "2", "--cohort", "2", "--batch", "5", "--json", "--out"]
    out = tmp_path / "run"
    cli.main(["run", "emnist", "--data", str(tmp_path / "set"), *arguments, str(out)])
    assert (out / "summary.json").exists()
    assert f'data = "{tmp_path}/set"' in (out / "config.toml").read_text()


@pytest.mark.slow
def test_a_wheel_contains_no_data_set(tmp_path):
    pytest.importorskip("hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        sizes = {info.filename: info.file_size for info in packed.infolist()}
    # The one large file is the library of the reports' figures, with its licence beside it.
    web = "taciturn/report/web"
    assert 1e6 < sizes.pop(f"{web}/plotly-basic.min.js") < 1.3e6
    assert sizes.pop(f"{web}/plotly-LICENSE.txt")
    assert {f"{web}/page.{kind}" for kind in ("html", "css", "js")} <= set(sizes)
    assert max(sizes.values()) < 100_000
    code = [name for name in sizes if ".dist-info/" not in name]
    assert all(name.endswith((".py", "py.typed", ".html", ".css", ".js")) for name in code)
    assert "taciturn/tasks/glyphs.py" in code
