"""`taciturn report`: the table, and the picture."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from test_report_page import POLICY, make, rows

from taciturn import cli
from taciturn.report import plots, series


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are written."""
    found, save = [], Figure.savefig

    def savefig(self, *arguments, **options):
        found.append(self)
        return save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return found


def test_table_and_picture(tmp_path, capsys, drawn):
    nothing = float("nan")
    folder = make(tmp_path, *(rows(POLICY, seed, 2, threshold=nothing, norm_mean=nothing)
                              for seed in (0, 1)))  # fmt: skip
    cli.main(["report", str(folder), "-o", str(folder / "report.png")])
    assert "80.50 ± 0.71 %" in capsys.readouterr().out
    with Image.open(folder / "report.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (1210, 880))  # 11 × 8 inches at 110
    by_upload, by_round, spoke, nbytes = drawn[0].axes
    # Tested after the second round alone, and never a threshold or a norm.
    for axes, x, y in (
        (by_round, [2], [80.5]),
        (by_upload, [40_320 / 1000], [80.5]),
        (spoke, [1, 2], [50, 50]),
    ):
        (line,) = axes.get_lines()
        assert line.get_xdata() == pytest.approx(x)
        assert line.get_ydata() == pytest.approx(y)
    assert nbytes.get_title("left").startswith("Bytes up and down")
    assert [tick.get_text() for tick in by_upload.get_xticklabels()] == ["30 kB", "40 kB"]
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [POLICY]


def test_the_picture_has_losses_and_norms_where_there_is_nothing_else(tmp_path, drawn):
    table = rows("full", rounds=2, accuracy=float("nan"), loss=0.5)
    plots.draw(series.read(make(tmp_path, table)), tmp_path / "report.png")
    by_upload, by_round, _, norms = drawn[0].axes
    found = [axes.get_lines()[0].get_ydata() for axes in (by_round, by_upload, norms)]
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.5, 0.5], [1, 1]])
    assert by_round.get_title("left").startswith("Loss by round")
