"""`taciturn data`: list, check and show."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from made import images, write_emnist
from test_own_files import write_set

from taciturn import cli
from taciturn.data.download import digest
from taciturn.data.inventory import check
from taciturn.errors import DataError
from taciturn.report.task_plots import show
from taciturn.tasks import Stored, Task

ROOT = Path(__file__).parents[2]


def write_sums(folder):
    sums = {path.relative_to(folder): digest(path, "sha256")[7:] for path in folder.rglob("*.h5")}
    (folder / "SHA256SUMS").write_text("".join(f"{sum}  {path}\n" for path, sum in sums.items()))


def test_the_list_says_what_is_there_and_what_is_missing(tmp_path, capsys):
    write_emnist(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.h5"))
    cli.main(["data", "list", "--data", str(tmp_path)])
    out = capsys.readouterr().out.splitlines()
    assert f"{size / 1e6:.1f} MB in {tmp_path}" in out[0]
    assert "missing; `taciturn data fetch shakespeare`" in out[1]
    assert any(line.startswith("glyphs") for line in out)


@pytest.mark.parametrize("folder", [".", "emnist"], ids=["beside the files", "in the folder above"])
def test_check_compares_with_what_was_published(tmp_path, folder, capsys):
    write_emnist(tmp_path / folder, {"f0": images(3), "f1": images(0)}, {"f0": images(2)})
    write_sums(tmp_path)
    cli.main(["data", "check", "emnist", "--data", str(tmp_path)])
    out = " ".join(capsys.readouterr().out.split())
    assert out.count(f"sha256 as in {tmp_path}/SHA256SUMS") == 2
    assert "clients 1 a part of the 3,400 published train 3 a part of the 671,585 published" in out
    assert "left out 1 clients without training examples" in out
    write_emnist(tmp_path / folder, {"f0": images(4)})
    with pytest.raises(DataError, match=r"fed_emnist_train.h5 is not the file whose checksum"):
        check("emnist", tmp_path)


def test_check_knows_published_sums_and_counts_of_single_files(tmp_path):
    write_set(tmp_path)
    lines = check("fashion", tmp_path)
    assert "packed otherwise than by the publisher" in lines[0]
    assert lines[4].split()[:2] == ["train", "60"]
    write_set(tmp_path, test=10_001)
    with pytest.raises(DataError, match="10,001 test, more than the 10,000 published"):
        check("fashion", tmp_path)


def picture(path):
    from PIL import Image

    assert path.read_bytes().startswith(b"\x89PNG")
    return np.asarray(Image.open(path).convert("L")).astype(int)


def test_show_draws_a_picture_of_the_data(tmp_path, capsys):
    out = tmp_path / "sheet.png"
    cli.main(["data", "show", "synthetic", "--out", str(out)])
    assert capsys.readouterr().out.strip() == str(out)
    assert picture(out).std() > 10


def shown(folder, name, x, y):
    """The picture of two clients with half of the rows each."""
    clients = Stored.of({"x": x, "y": y}, [len(x) // 2] * 2)
    return picture(show(Task(name, clients, None, None, None), folder / "two.png"))


def test_show_puts_a_clients_examples_in_its_row(tmp_path):
    """Of two clients one is all white and one all black: one block of the sheet is ink."""
    x = np.repeat(np.float32([0, 1]), 3 * 28 * 28).reshape(6, 28, 28)
    ink = shown(tmp_path, "two", x, np.arange(6))[:, 60:850] < 10
    rows = np.flatnonzero(ink.sum(1) > 50)
    assert 20 < len(rows) < 60  # images are 0.03 of the sheet's width, and so is their height


def test_show_draws_text(tmp_path):
    text = np.zeros((4, 80), np.uint8)
    text[:, :4] = [88, 14, 89, 15]  # a `$` in it, which must not begin a formula
    assert shown(tmp_path, "shakespeare", text, text).min() == 0


@pytest.mark.slow
def test_a_wheel_has_its_pages_and_no_data_set(tmp_path):
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        sizes = {info.filename: info.file_size for info in packed.infolist()}
    web = "taciturn/report/web"
    assert sizes.pop(f"{web}/plotly-LICENSE.txt")
    assert 1e6 < sizes.pop(f"{web}/plotly-basic.min.js") < 1.3e6
    assert {f"{web}/page.{kind}" for kind in ("html", "css", "js")} <= set(sizes)
    assert max(sizes.values()) < 100_000
