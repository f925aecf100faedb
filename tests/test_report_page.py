"""`taciturn report` and `watch`: page, picture, and server; how a page looks is in test_browser."""

import base64
import html
import json
import re
import shlex
import signal
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from taciturn import cli, runs
from taciturn.errors import InputError
from taciturn.report import figures, page, series, units, watch

POLICY = "adaptive,k=0+ou"


def rows(arm, seed=0, rounds=40, best=0.8, **others):
    """Rounds tested every second one, up to `best`; all clients speak in `full`, half elsewhere."""
    spoke = 10 if arm == "full" else 5
    return [
        {"arm": arm, "seed": seed, "round": t + 1, "spoke": spoke, "asked": 10, "rejected": 0,
         "threshold": float("nan") if arm == "full" else 0.5 + t, "norm_mean": 1.0 + seed,
         "norm_std": 0.1, "bytes_up": 4000 * spoke, "overhead_up": 160, "bytes_up_full": 40160,
         "bytes_down": 40000, "overhead_down": 160, "bytes_down_full": 40160, "loss": float("nan"),
         "accuracy": best * (t + 1) / rounds + 0.01 * seed if t % 2 else float("nan")}
        | others for t in range(rounds)
    ]  # fmt: skip


def make(folder, *tables, config=None):
    folder.mkdir(parents=True, exist_ok=True)
    runs.write_csv(folder / "metrics.csv", [row for table in tables for row in table])
    settings = {"task": "synthetic", "rounds": 40, "cohort": 10, "seeds": [0, 1], "lr": 0.1,
                "arms": "full; adaptive,k=0+ou", "plain": True}  # fmt: skip
    runs.write_toml(folder / "config.toml", settings | (config or {}))
    return folder


@pytest.fixture
def folder(tmp_path):
    arms = (POLICY, "full")
    return make(tmp_path / "run", *(rows(arm, seed) for arm in arms for seed in (0, 1)))


@pytest.fixture
def shown(tmp_path):
    """The content of a page of these rows."""
    return lambda *tables: content(make(tmp_path / "run", *tables))


def content(*folders, **options):
    return page.content(folders, series.read_all(folders), **options)


def array(packed):
    return np.frombuffer(base64.b64decode(packed["bdata"]), f"<{packed['dtype']}")


def panels(shown):
    return {panel["key"]: panel for panel in shown["panels"]}


def lines(shown, key):
    """Arm -> x, y of the lines of a panel, shades left out."""
    traces = [trace for trace in panels(shown)[key]["data"] if "fill" not in trace]
    return {shown["arms"][one["meta"]]["name"]: (array(one["x"]), array(one["y"]))
            for one in traces}  # fmt: skip


def cells(shown, title):
    """The rows of a table, as text."""
    section = shown["tables"].split(f"<h2>{title}</h2>")[1].split("</section>")[0]
    found = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row)
             for row in re.findall("<tr>(.*?)</tr>", section)]  # fmt: skip
    return [[re.sub("<.*?>", "", cell) for cell in row] for row in found]


def test_curves_and_shades_are_those_of_the_rounds(folder):
    shown = content(folder)
    x, y = lines(shown, "accuracy")["full"]
    assert x.tolist() == list(range(2, 41, 2))
    assert y == pytest.approx([2 * t + 0.5 for t in range(2, 41, 2)])
    uploaded, same = lines(shown, "accuracy-upload")[POLICY]
    assert uploaded == pytest.approx([t * 20160 / 1e6 for t in range(2, 41, 2)])
    assert same == pytest.approx(y)
    assert set(lines(shown, "spoke")[POLICY][1]) == {50}
    assert set(lines(shown, "bits")[POLICY][1]) == {16}
    shade, full, _, policy = panels(shown)["accuracy"]["data"]
    assert shade["mode"] == "lines"  # without it, Plotly draws a dot for each point
    high, low = np.split(array(shade["y"]), 2)
    assert high == pytest.approx(y + 0.5)
    assert low[::-1] == pytest.approx(y - 0.5)
    # Nothing that lies on full communication's line hides it, and dotted lines have no shades.
    assert full["line"]["width"] > policy["line"]["width"]
    traces = panels(shown)["bytes"]["data"]
    assert ["fill" in trace for trace in traces] == [True, False, False] * 2


def test_there_are_no_empty_panels(shown):
    def keys(**columns):
        return set(panels(shown(rows("full", **columns))))

    untested = {"spoke", "norms", "bytes", "bits"}
    always = untested | {"accuracy", "accuracy-upload"}
    nothing = float("nan")
    assert keys() == always
    assert keys(accuracy=nothing) == untested
    own = {"rejected": 1, "worst_tenth": 0.2, "f1": 0.5}
    assert keys(**own) == always | {"rejected", "worst-tenth", "metric-0"}
    # Where numbers are predicted there is a loss alone.
    numbers = {"accuracy": nothing, "loss": 0.5, "worst_tenth": nothing}
    assert keys(**numbers) == untested | {"loss", "loss-upload"}
    head, full = cells(shown(rows("full", **numbers)), "Figures of every arm")
    assert dict(zip(head, full, strict=True))["loss"] == "0.5"


def test_the_tables_have_payload_and_overhead_and_what_was_written_at_the_end(folder):
    figures = {"difference": {"mean": -1.25, "half": 0.5}, "noise_floor": {"mean": 0.3, "most": 1}}
    runs.write_json(folder / "summary.json", {"arms": {POLICY: figures}})
    shown = content(folder)
    head, full, policy = cells(shown, "Figures of every arm")
    assert full[0] == "full"  # what all is compared with stands at the top
    assert dict(zip(head, policy, strict=True)) == {
        "arm": POLICY, "accuracy": "80.50 ± 0.71 %", "difference": "-1.25 ± 0.50",
        "noise floor": "0.30 points", "spoke": "50.0 %", "bits per weight": "32", "rounds": "40",
        "seeds": "2",
    }  # fmt: skip
    head, _, policy = cells(shown, "Bytes of every arm")
    assert dict(zip(head, policy, strict=True)) == {
        "arm": POLICY, "payload up": "800 kB", "overhead up": "6.4 kB",
        "payload down": "1.6 MB", "overhead down": "6.4 kB", "upload of full": "50.2 %",
        "both ways of full": "75.1 %",
    }  # fmt: skip
    assert 'title="800,000 bytes"' in shown["tables"]


def test_the_saving_is_said_first(tmp_path, shown):
    def saved(*tables):
        text = re.sub("<.*?>", "", shown(*tables)["savings"])
        return text.removeprefix(f"{POLICY} 50.2 % of the upload, ")

    one, two = [rows("full", 0), rows(POLICY, 0, best=0.7)], [rows("full", 1), rows(POLICY, 1)]
    assert saved(*one) == "-10.00 points with one seed"
    assert saved(*one, *two) == "-5.00 points"
    assert saved(rows(POLICY, 0)) == "80.00 %"
    numbers = {"accuracy": float("nan"), "loss": 0.5}
    assert saved(*(rows(arm, **numbers) for arm in (POLICY, "full"))) == "loss 0.5, full 0.5"
    # A difference from another policy than full communication is none from it.
    paired = {"difference": {"mean": -1.25, "half": 0.5}}
    runs.write_json(tmp_path / "run" / "summary.json", {"arms": {POLICY: paired}})
    assert saved(*one, *two) == "-1.25 ± 0.50 points"
    runs.write_json(tmp_path / "run" / "summary.json", {"arms": {POLICY: paired, "full": paired}})
    assert saved(*one, *two) == "-5.00 points"


def test_ticks_of_bytes_are_few_and_round():
    for ends, texts in (
        ((1000, 9000), ["1 kB", "2 kB", "5 kB"]),
        ((5000, 16e6), ["10 kB", "100 kB", "1 MB", "10 MB"]),
    ):
        assert units.byte_axis(*ends)[1] == texts


def test_uploads_are_counted_until_shares_of_what_full_reached(tmp_path):
    slow = make(tmp_path / "run", rows("full"), rows("random:0.5+ignore", best=0.75))
    head, full, policy = cells(content(slow), "Upload until an accuracy")
    assert head == ["arm", "72 %", "76 %", "79.2 %"]
    better = make(tmp_path / "better", rows("full"), rows("random:0.5+ignore", best=0.9))
    assert cells(content(better), "Upload until an accuracy")[0] == head
    assert full[1] == f"{units.byte_text(36 * 40160)}, round 36"
    # 38 rounds: 71.25 %
    assert policy[1:3] == [f"{units.byte_text(40 * 20160)}, round 40", "not reached"]
    head, *_ = cells(content(slow, accuracies=(10,)), "Upload until an accuracy")
    assert head == ["arm", "10 %"]


def test_settings_and_the_command_that_repeats_them(folder):
    shown = content(folder)
    assert ["lr", "0.1"] in cells(shown, "Settings")
    (line,) = re.findall("<pre>(.*?)</pre>", shown["tables"])
    command = cli.read(shlex.split(html.unescape(line))[1:])
    assert (command.task, command.rounds, command.cohort, command.lr) == ("synthetic", 40, 10, 0.1)
    assert command.policies() == "full; adaptive,k=0+ou"
    assert (command.seeds, command.plain) == ((0, 1), True)


def test_the_folder_of_a_sweep_is_the_folders_in_it(tmp_path, folder, capsys):
    for lr in ("0.1", "0.3"):
        make(tmp_path / "sweep" / f"lr={lr}", rows("full"))
    cli.main(["report", str(tmp_path / "sweep"), str(folder), "-o", str(tmp_path / "x.html")])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("lr=0.1: full", "lr=0.3: full", "run: full"))
    assert "instead of" not in shown  # runs may differ in more than their policies
    watched = watch.Source([tmp_path / "sweep"]).content()
    assert watched["subtitle"].startswith("lr=0.1, lr=0.3: 40 rounds")


def test_seeds_that_run_after_others_do_not_cut_them_off(shown):
    for rounds, expected in ((3, "run: 40 rounds, 1 seed"), (39, "run: 39 of 40 rounds, 2 seeds")):
        told = shown(rows("full", 0), rows("full", 1, rounds=rounds))["subtitle"]
        assert told.partition(";")[0] == expected


def test_names_are_text_and_never_markup(shown):
    name = '</script><img src=x onerror="alert(1)">'
    text = page.render(shown(rows(name)))
    assert "<img" not in text
    assert text.count("</script>") == 3
    data = text.split('id="content">')[1].split("</script>")[0]
    assert json.loads(data)["arms"][0]["name"] == name


def test_rows_of_arms_and_seeds_may_alternate(folder):
    """As they do where a run writes chunk by chunk."""
    before = content(folder)
    table = runs.read_csv(folder / "metrics.csv")
    table.sort(key=lambda row: (int(row["round"]), row["seed"]))
    runs.write_csv(folder / "metrics.csv", table)
    assert content(folder) == before


def test_what_differs_from_round_to_round_is_drawn_as_means(shown):
    found = shown([row | {"spoke": t % 21} for t, row in enumerate(rows("full", rounds=1010))])
    x, y = lines(found, "spoke")["full"]
    assert x.tolist() == [*range(21, 1010, 21), 1010]
    assert y == pytest.approx([100.0] * 48 + [5.0])  # 0 and 1 in the last two rounds
    assert panels(found)["spoke"]["note"].endswith("means of 21 rounds")
    tested = lines(found, "accuracy")["full"][0]
    assert (len(tested), tested[0], tested[-1]) == (500, 2, 1010)  # of 505: what a screen shows


def test_a_log_axis_has_no_place_for_nothing(shown):
    found = shown(rows("full", rounds=4, bytes_up=0, overhead_up=0) + rows("full", rounds=10)[4:])
    assert lines(found, "bits")["full"][0].tolist() == [5, 6, 7, 8, 9, 10]
    assert lines(found, "accuracy-upload")["full"][0][0] > 0
    assert "bits" not in panels(shown(rows("full", bytes_up=0)))


@contextmanager
def serving(*folders):
    with watch.serve(watch.Source(folders)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, answer.read().decode()


def test_a_run_is_watched_while_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "_REST", 0)
    run = tmp_path / "run"
    run.mkdir()
    with serving(run) as url:
        assert 'data-live="true"' in get(url)[1]
        empty = json.loads(get(f"{url}/data.json")[1])
        assert (empty["subtitle"], empty["panels"]) == ("no rounds yet", [])
        make(run, rows("full", rounds=4))
        with open(run / "metrics.csv", "a") as file:
            file.write("full,0,4,10,0,")  # being written
        now = json.loads(get(f"{url}/data.json")[1])
        assert now["subtitle"] == "run: 4 of 40 rounds, 1 seed"
        assert (now["ended"], len(now["panels"])) == (False, 6)
        assert get(f"{url}/data.json?known={now['version']}") == (204, "")
        runs.write_json(run / "summary.json", {"task": "synthetic"})
        assert json.loads(get(f"{url}/data.json?known={now['version']}")[1])["ended"]


def test_a_folder_that_takes_long_to_read_is_given_a_rest(folder, monkeypatch):
    monkeypatch.setattr(watch, "_REST", 1e9)
    source = watch.Source([folder])
    first = source.content()
    make(folder, rows("full", rounds=4))
    assert source.content() is first


def test_the_server_shows_the_page_alone_and_to_this_machine_alone(folder):
    files = {path.name for path in folder.iterdir()}
    with serving(folder) as url:
        for path, headers, status in (
            ("/metrics.csv", {}, 404),
            ("/../config.toml", {}, 404),
            ("/", {"Host": "rebound.example"}, 403),
        ):
            with pytest.raises(urllib.error.HTTPError) as error:
                get(url + path, **headers)
            assert error.value.code == status
            error.value.close()
    assert {path.name for path in folder.iterdir()} == files  # nothing was written


def test_an_address_that_is_taken_is_named(folder):
    with serving(folder) as url, pytest.raises(InputError, match="cannot be listened on"):
        cli.main(["watch", str(folder), "--port", url.rpartition(":")[2]])


def test_ctrl_c_ends_it(folder, capsys, monkeypatch):
    def stopped(server):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(watch.ThreadingHTTPServer, "serve_forever", stopped)
    cli.main(["watch", str(folder)])
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_several_runs_overlay(folder, tmp_path):
    other = make(tmp_path / "other", rows("full", best=0.9), config={"lr": 0.3})
    shown = content(folder, other)
    assert [(arm["name"], arm["dash"]) for arm in shown["arms"]] == [
        ("run: full", "solid"), ("run: adaptive,k=0+ou", "solid"), ("other: full", "dash"),
    ]  # fmt: skip
    assert shown["arms"][0]["colour"] == shown["arms"][2]["colour"] == figures.GREY
    assert ["lr", "0.1", "0.3"] in cells(shown, "Settings")


def test_an_arm_keeps_its_colour():
    alone = figures.colours(["adaptive+ou"])["adaptive+ou"]
    others = [f"random:{i}+zero" for i in range(30)]
    assert figures.colours([*others[:10], "adaptive+ou", "full"])["adaptive+ou"] == alone
    few = figures.colours([*others[:8], "full"])
    assert (len(set(few.values())), few["full"]) == (9, figures.GREY)
    assert few[others[0]] == figures.colours([others[0]])[others[0]]


def test_table_and_picture(tmp_path, capsys, monkeypatch):
    drawn, save = [], figures.save
    monkeypatch.setattr(
        figures, "save", lambda *args, **how: drawn.append(args[0]) or save(*args, **how)
    )
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
    assert [len(axes.collections) for axes in drawn[0].axes] == [1] * 4  # shades, not of dots
    assert [tick.get_text() for tick in by_upload.get_xticklabels()] == ["30 kB", "40 kB"]
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [POLICY]
