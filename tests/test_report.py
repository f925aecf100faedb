"""`taciturn report`: the table, and the picture."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from test_report_page import make, rows

from taciturn import cli
from taciturn.report import plots, series

POLICY = "adaptive,k=0+ou"


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
        assert (picture.format, picture.size) == ("PNG", (1210, 770))  # 11 × 7 inches at 110
    by_round, by_upload, threshold, spoke = drawn[0].axes
    # Tested after the second round alone, and never a threshold.
    for axes, x, y in (
        (by_round, [2], [80.5]),
        (by_upload, [40_000 / 1024], [80.5]),
        (spoke, [1, 2], [5, 5]),
    ):
        (line,) = axes.get_lines()
        assert line.get_xdata() == pytest.approx(x)
        assert line.get_ydata() == pytest.approx(y)
    assert not threshold.get_lines()
    assert by_upload.get_xlabel() == "payload uploaded, KiB"
    assert [text.get_text() for text in by_round.get_legend().get_texts()] == [POLICY]


def test_the_picture_has_losses_and_norms_where_there_is_nothing_else(tmp_path, drawn):
    table = rows("full", rounds=2, accuracy=float("nan"), loss=0.5)
    plots.draw(series.read(make(tmp_path, table)), tmp_path / "report.png")
    by_round, by_upload, norms, _ = drawn[0].axes
    found = [axes.get_lines()[0].get_ydata() for axes in (by_round, by_upload, norms)]
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.5, 0.5], [1, 1]])
    assert by_round.get_ylabel() == by_upload.get_ylabel() == "test loss"
    assert norms.get_ylabel() == "mean norm of updates"


@pytest.mark.parametrize(("factor", "scale"), [(2, "linear"), (100, "log")])
def test_uploads_that_differ_by_far_are_drawn_on_a_log_axis(tmp_path, drawn, factor, scale):
    folder = make(tmp_path, rows("few", bytes_up=10), rows("many", bytes_up=10 * factor))
    plots.draw(series.read(folder), tmp_path / "report.png")
    assert drawn[0].axes[1].get_xscale() == scale
