"""What a terminal, and a log file, show of a run while it goes on."""

import io
import math

import pytest
from rich.console import Console

from taciturn.progress import Compiling, Progress
from taciturn.report import terminal
from taciturn.settings import Settings


def done(arm, round, accuracy=math.nan, seeds=(0,)):
    return Progress(arm, None, round, accuracy, spoke=5 * round, asked=10 * round,
                    bytes_up=1000 * round, seeds=seeds)  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def shown(arms=("full", "adaptive+ou"), width=100, force_terminal=False, **settings):
    file, clock = io.StringIO(), Clock()
    console = Console(file=file, force_terminal=force_terminal, width=width, color_system=None)
    settings = Settings(**{"rounds": 100} | settings)
    return terminal.Live(list(arms), settings, console, clock), file, clock


def test_a_log_file_gets_lines_at_intervals():
    live, file, clock = shown()
    with live:
        live(Compiling(6))
        for t in range(1, 101):
            clock.now = float(t)
            for arm in ("full", "adaptive+ou"):
                live(done(arm, t, accuracy=t / 200 if t >= 20 else math.nan))
    lines = file.getvalue().splitlines()
    assert lines[:2] == ["compiling a program of 6 runs",
                         "full: round 10/100, spoke 50 %, up 10 kB, left 01:30"]  # fmt: skip
    same = "accuracy 10.0 %, spoke 50 %, up 20 kB, left 01:20"
    assert lines[4] == f"adaptive+ou: round 20/100, {same}"
    assert lines[-1] == "adaptive+ou: round 100/100, accuracy 50.0 %, spoke 50 %, up 100 kB"
    assert len(lines) == 1 + 2 * 10


def test_where_seeds_run_one_after_another_rounds_are_those_of_all():
    live, file, clock = shown(arms=["full"], seeds=(3, 5))
    for clock.now, seed in ((100.0, 3), (200.0, 5)):
        live(done("full", 50, seeds=(seed,)))
    last = file.getvalue().splitlines()[-1]
    assert last == "full: round 150/200, spoke 50 %, up 50 kB, left 00:50"


@pytest.mark.parametrize("width", [60, 100])
def test_a_terminal_has_a_line_per_arm_that_fits(width):
    name = "adaptive,k=0.5+ignore+eden:0.5"
    live, file, clock = shown(arms=["full", name], width=width, force_terminal=True)
    live(done("full", 1))
    clock.now = 60.0
    live(done("full", 50, accuracy=0.25))
    live(done("full", 61, accuracy=0.75))
    live._console.print(live._table())
    head, full, other = file.getvalue().splitlines()
    assert head.split() == ["round", "accuracy", "spoke", "up", "left"]
    assert " ".join(full.split()).endswith("61/100 75.0 % 50 % 61 kB 00:39")
    assert max(map(len, (head, full, other))) <= width
    assert ("▁" * 13 + "██" in full) == (width == 100)
    seen, state = other.split()
    assert (name.startswith(seen.rstrip("…")), state) == (True, "waiting")
    assert (seen == name) == (width == 100)


def test_a_spark_line_fills_as_the_run_goes_on():
    for values, width, text in (
        ([], 4, "    "),
        ([(1, 0.5)], 4, "▁▁▁▁"),
        ([(0.25, 0.0), (0.5, 1.0)], 4, "▁▁█ "),
        ([(0.1, 0.0), (0.2, 0.5), (0.9, 1.0)], 2, "▅█"),
        ([(0.5, 0.5)], 0, ""),
    ):
        assert terminal.spark(values, width) == text


def printed(capsys, **arms):
    """The lines of the table and of the notes below it."""
    terminal.print_table(arms)
    return capsys.readouterr().out.splitlines()


FIGURES = {"rounds": 3, "seeds": [0], "accuracy": [50.0], "accuracy_mean": 50.0,
           "accuracy_std": None, "worst_tenth": None, "spoke_share": 100.0, "upload_bytes": 10.0,
           "upload_overhead_bytes": 1.0, "upload_share": 3.0, "download_share": 100.0,
           "traffic_share": 51.5}  # fmt: skip


def test_the_table_shows_both_ways_where_downloads_are_short(capsys):
    assert "ways" not in " ".join(printed(capsys, full=FIGURES))
    short = FIGURES | {"download_share": 4.0, "traffic_share": 3.5}
    above, below, full, down, *_ = printed(capsys, full=FIGURES, down=short)
    assert (above.split()[-1], below.split()[-1]) == ("both", "ways")
    assert (full.split()[-2], down.split()[-2]) == ("51.5", "3.5")


def test_models_that_predict_numbers_have_a_loss(capsys):
    numbers = FIGURES | {"accuracy_mean": None, "loss_mean": 0.39412}
    head, first, second, *_ = printed(capsys, full=numbers, untested=numbers | {"loss_mean": None})
    assert (head.split()[1], first.split()[1]) == ("loss", "0.3941")
    assert second.split()[1:3] == ["not", "tested"]
    assert "loss 0.3941" in printed(capsys, full=FIGURES, numbers=numbers)[2]


def test_what_is_saved_is_said_below_the_table(capsys):
    full = FIGURES | {"upload_share": 100.0, "upload_bytes": 1999.0}
    few = FIGURES | {"accuracy_mean": 49.0, "upload_bytes": 99.0, "upload_share": 5.0}
    low = few | {"accuracy_mean": 48.9, "upload_share": 4.0}
    saved = "few uploaded 100 B instead of 2 kB, and ends 1.00 points below full."
    arms = {"full": full, "some": FIGURES | {"upload_share": 9.0}, "few": few, "low": low}
    found = " ".join(printed(capsys, **arms))
    assert f"{saved} With one seed, differences of a point may be chance" in found
    assert "million" not in found
    # The recommended policy is named wherever it ends, unless it saves nothing.
    budget = low | {"upload_bytes": 39_760.0, "upload_overhead_bytes": 240.0}
    found = " ".join(printed(capsys, **arms, budget=budget))
    assert "budget uploaded 40 kB instead of 2 kB, and ends 1.10 points below full." in found
    assert "A model of a million weights would need as many bytes: 0.1 % of its upload." in found
    assert saved in " ".join(printed(capsys, **arms, budget=budget | {"upload_share": 100.0}))
    for arms in ({"full": full}, {"a": FIGURES, "few": few}, {"full": full, "low": low},
                 {"full": full, "few": few | {"accuracy_mean": None}}):  # fmt: skip
        assert "instead of" not in " ".join(printed(capsys, **arms))


def test_the_widest_table_has_eighty_characters(capsys, monkeypatch):
    name = "adaptive+ignore+eden:0.5,feedback=true"
    seeds = {"seeds": [0, 1], "accuracy_std": 12.34, "worst_tenth": 43.21,
             "upload_bytes": 123456789.0, "download_share": 4.0,
             "noise_floor": {"mean": 0.5, "most": 1.5}}  # fmt: skip
    compared = FIGURES | seeds | {"difference": {"mean": -12.34, "half": 12.34}}
    arms = {"full": FIGURES | seeds, name: compared}
    monkeypatch.setenv("COLUMNS", "80")
    lines = printed(capsys, **arms)
    assert max(len(line) for line in lines[:7]) == 80
    assert "payload" not in lines[1]
    monkeypatch.setenv("COLUMNS", "140")
    wide = " ".join(printed(capsys, **arms))
    assert all(text in wide for text in ("payload", "overhead", name))


def test_a_policy_is_cut_where_its_parts_meet():
    for room, lines in (
        (99, ["adaptive+ignore+eden:0.5"]),
        (15, ["adaptive+ignore", "+eden:0.5"]),
        (3, ["adaptive", "+ignore", "+eden:0.5"]),
    ):
        assert terminal.folded("adaptive+ignore+eden:0.5", room).split("\n") == lines
