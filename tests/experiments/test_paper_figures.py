"""Figures show what the results have."""

import numpy as np
import pytest
from experiments.paper import figures, measures
from experiments.paper.comparing import collapsed
from experiments.paper.experiments import EMNIST, MAIN, SYNTHETIC, THRESHOLDS
from PIL import Image

from taciturn.core import messages
from taciturn.studies import figure

NAMES = ("ou", "ou constrained", "zero", "ignore")


def lines_of(axes):
    """The lines that have a name, without the thin ones of single seeds."""
    return {line.get_label(): line for line in axes.get_lines() if line.get_label()[0] != "_"}


def test_curves_are_medians_with_every_seed_where_a_run_collapsed(made_up):
    shown = {e.name: made_up[e.name] for e in (EMNIST, SYNTHETIC)}
    drawn = figures.accuracy(shown)
    arms = ["full", *(f"{rule} {n}" for rule in ("adaptive", "random") for n in NAMES)]
    for row, result in enumerate(shown.values()):
        for axes in drawn.axes[2 * row : 2 * row + 2]:
            lines = lines_of(axes)
            assert list(lines) == arms
            thin = len(axes.get_lines()) - len(lines)
            assert thin == 3 * sum(collapsed(result, n, 100).any() for n in arms) > 0
            assert len(axes.collections) == 1  # the shade of `full`, and no other
            for name, line in lines.items():
                arm = result.arms[name]
                np.testing.assert_array_equal(line.get_xdata(), arm.tested)
                np.testing.assert_allclose(line.get_ydata(), np.median(arm.accuracy, 0))
            looks = {(line.get_color(), repr(line._dash_pattern)) for line in lines.values()}
            assert len(looks) == len(arms)
            assert 100 in axes.get_xticks()
        assert drawn.axes[2 * row].get_title() == result.experiment.title
    whole, zoom = drawn.axes[:2]
    assert zoom.get_ylim()[0] > 40  # `ou` fell to 10
    assert whole.get_ylim()[0] < 10
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == arms


def test_uploads_are_drawn_as_they_are_and_as_shares(made_up):
    shown = {e.name: made_up[e.name] for e in MAIN}
    drawn = figures.upload(shown)
    totals, shares = drawn.axes[: len(shown)], drawn.axes[len(shown) :]
    for total, share, result in zip(totals, shares, shown.values(), strict=True):
        assert not total.collections  # no shade
        thin = len(total.get_lines()) - len(lines_of(total))
        assert thin == 3 * sum(collapsed(result, n, 100).any() for n in lines_of(total)) > 0
        for name, line in lines_of(total).items():
            np.testing.assert_allclose(
                line.get_ydata(), np.median(result.arms[name].uploaded, 0) / 2**30
            )
        assert lines_of(share).keys() == lines_of(total).keys() - {"full"}
        for name, line in lines_of(share).items():
            arm = result.arms[name]
            percent = 100 * arm.uploaded / (arm.tested * 10 * (4 * 250 + messages.OVERHEAD))
            np.testing.assert_allclose(line.get_ydata(), np.median(percent, 0))
            low, high = share.get_ylim()
            assert low < line.get_ydata()[-1] < high


def test_shares_of_the_first_rounds_do_not_widen_the_axis(made_up):
    result = made_up[EMNIST.name]
    early = result.arms["adaptive zero"].tested.copy()
    early[0] = 5
    arms = {name: arm._replace(tested=early) for name, arm in result.arms.items()}
    share = figures.upload({EMNIST.name: result._replace(arms=arms)}).axes[1]
    first = [line.get_ydata()[0] for line in lines_of(share).values()]
    assert share.get_ylim()[1] < min(first)  # twenty rounds' upload in five


def test_a_seed_that_diverged_does_not_take_the_median_of_thresholds_with_it(made_up):
    result = made_up[EMNIST.name]
    path = np.full((3, 100), 0.5)
    path[2, 20:] = 0.0  # the seed that collapses
    path[2, 10] = 1e-9
    arms = result.arms | {"adaptive ou": result.arms["adaptive ou"]._replace(threshold=path)}
    (axes,) = figures.thresholds({EMNIST.name: result._replace(arms=arms)}).axes
    assert axes.get_yscale() == "log"
    lines = lines_of(axes)
    assert list(lines) == list(NAMES)
    for name, line in lines.items():
        np.testing.assert_array_equal(line.get_xdata(), np.arange(2, 101))
        median = np.median(arms[f"adaptive {name}"].threshold[:, 1:100], 0)
        np.testing.assert_allclose(line.get_ydata(), median)
    np.testing.assert_array_equal(lines["ou"].get_ydata(), 0.5)
    assert len(axes.get_lines()) == len(lines) + 3  # the seeds of `ou`
    assert len(axes.collections) == 3  # shades of the others
    low, high = axes.get_ylim()
    assert 0.05 < low < 0.1  # that of the others, which are drawn from 0.1 on
    assert 2 < high < 3
    assert axes.yaxis.get_transform()._clip


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
    assert not points.texts  # all medians are there
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert names[::-1] == list(EMNIST.arms)
    goal = measures.TARGET * np.median(result.arms["full"].at(100))
    widths = {names[round(bar.get_y() + bar.get_height() / 2)]: bar.get_width()
              for bar in bars.patches}  # fmt: skip
    reached = {n: measures.bytes_to(result, n, float(goal)) for n in EMNIST.arms}
    assert {n: s / 2**30 for n, s in reached.items() if s is not None} == pytest.approx(widths)
    (legend,) = drawn.legends
    named = {text.get_text() for text in legend.get_texts()}
    assert {"full", "adaptive", "random unweighted", *NAMES} <= named


def test_medians_below_the_axis_have_an_arrow_with_name_and_value(made_up):
    result = made_up[EMNIST.name]
    low = result.arms["random ou"]._replace(accuracy=np.full((3, 5), 12.34))
    result = result._replace(arms=result.arms | {"random ou": low})
    points = figures.against_bytes({EMNIST.name: result}).axes[0]
    (arrow,) = points.texts
    assert arrow.get_text() == "random ou 12.3 %"
    edge = points.get_ylim()[0]
    assert arrow.xy == (float(np.median(result.gib("random ou", 100))), edge)
    assert arrow.arrow_patch is not None
    sent = np.concatenate([result.gib(n, 100)[a.at(100) >= edge] for n, a in result.arms.items()])
    start = points.get_xlim()[0]
    assert sent.min() - 0.1 * np.ptp(sent) < start < sent.min()


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
