"""`taciturn report`: runs, looked at again."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from taciturn import cli, runs
from taciturn.report import plots, series


def rows(arm, seed, accuracy, spoke):
    return [
        {
            "arm": arm,
            "seed": seed,
            "round": t + 1,
            "spoke": s,
            "threshold": float("nan"),
            "bytes_up": 1000 * s,
            "overhead_up": 16,
            "asked": 4,
            "bytes_up_full": 4016,
            "accuracy": a,
        }
        for t, (a, s) in enumerate(zip(accuracy, spoke, strict=True))
    ]


@pytest.fixture
def folder(tmp_path):
    table = rows("adaptive+ou", 0, (float("nan"), 0.5), (4, 2)) + rows(
        "adaptive+ou", 1, (float("nan"), 0.7), (4, 2)
    )
    runs.write_csv(tmp_path / "metrics.csv", table)
    return tmp_path


def test_figures_are_those_of_the_rounds(folder):
    (one,) = series.read(folder).values()
    found = one.summary()
    assert (found["rounds"], found["seeds"]) == (2, [0, 1])
    assert found["accuracy"] == pytest.approx([50, 70])
    assert found["accuracy_mean"] == pytest.approx(60)
    assert found["accuracy_std"] == pytest.approx(14.142, abs=1e-3)
    assert (found["upload_bytes"], found["upload_overhead_bytes"]) == (6000, 32)
    assert found["spoke_share"] == pytest.approx(75)
    assert found["upload_share"] == pytest.approx(100 * 6032 / 8032)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are written."""
    found = []
    save = Figure.savefig

    def savefig(self, *arguments, **options):
        found.append(self)
        return save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return found


def size(path):
    with Image.open(path) as picture:
        return picture.format, picture.size


def test_table_and_picture(folder, capsys, drawn):
    cli.main(["report", str(folder), "-o", str(folder / "report.png")])
    assert "60.00 ± 14.14 %" in capsys.readouterr().out
    assert size(folder / "report.png") == ("PNG", (1210, 770))  # 11 × 7 inches at 110
    by_round, by_upload, threshold, spoke = drawn[0].axes
    # Tested after the second round alone, and never a threshold.
    for axes, x, y in (
        (by_round, [2], [60]),
        (by_upload, [6000 / 1024], [60]),
        (spoke, [1, 2], [4, 2]),
    ):
        (line,) = axes.get_lines()
        assert line.get_xdata() == pytest.approx(x)
        assert line.get_ydata() == pytest.approx(y)
    assert not threshold.get_lines()
    assert by_upload.get_xlabel() == "payload uploaded, KiB"
    assert [text.get_text() for text in by_round.get_legend().get_texts()] == ["adaptive+ou"]


def test_the_picture_has_losses_and_norms_where_there_is_nothing_else(tmp_path, drawn):
    nothing = (float("nan"), float("nan"))
    table = [row | {"loss": 0.5 / (t + 1), "norm_mean": 2.0 + t}
             for t, row in enumerate(rows("full", 0, nothing, (4, 4)))]  # fmt: skip
    runs.write_csv(tmp_path / "metrics.csv", table)
    plots.draw(series.read(tmp_path), tmp_path / "report.png")
    by_round, by_upload, norms, _ = drawn[0].axes
    found = [axes.get_lines()[0].get_ydata() for axes in (by_round, by_upload, norms)]
    np.testing.assert_allclose(found, [[0.5, 0.25], [0.5, 0.25], [2, 3]])
    assert by_round.get_ylabel() == by_upload.get_ylabel() == "test loss"
    assert norms.get_ylabel() == "mean norm of updates"


@pytest.mark.parametrize(("factor", "scale"), [(2, "linear"), (100, "log")])
def test_uploads_that_differ_by_far_are_drawn_on_a_log_axis(tmp_path, drawn, factor, scale):
    table = rows("few", 0, (0.1, 0.5), (1, 1)) + rows("many", 0, (0.1, 0.5), (factor, factor))
    runs.write_csv(tmp_path / "metrics.csv", table)
    plots.draw(series.read(tmp_path), tmp_path / "report.png")
    assert drawn[0].axes[1].get_xscale() == scale
