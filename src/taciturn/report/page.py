"""The page of run folders: one HTML file that needs nothing else, and asks no network."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import __version__, files
from taciturn.errors import RunError
from taciturn.report import figures, series
from taciturn.report.colours import styles
from taciturn.report.series import Series
from taciturn.report.units import SPEEDS, byte_text, percent, upload_time

SHARES = (0.9, 0.95, 0.99)  # of the best accuracy, to which uploads are counted
_OF_A_FEDERATION: tuple[str, ...] = ("task", "rule", "stand_in", "codec")

_NOTE = """\
± is the standard deviation over seeds; of a difference, which is to the first arm of the run, half
of its 95 % interval. The noise floor is how far the accuracy of a seed moves by rounding alone, on
average. The worst tenth is the mean accuracy of the clients that fare worst; silent is how often
clients were that answered, the third of them with the fewest examples and the third with the most.
Bits per weight are those of clients that spoke."""
_NOTE_ON_BYTES = """\
Sums over rounds and clients, means over seeds; point at one for all its digits. Times are for
payload and overhead of all clients, one after another."""


class Target(NamedTuple):
    """An accuracy, of 100, and why it is asked for."""

    accuracy: float
    why: str


def write(
    folders: Sequence[Path],
    arms: Mapping[str, Series],
    path: Path,
    accuracies: Sequence[float] = (),
) -> Path:
    """Writes the page of these folders, whose arms were read."""
    text = render(content(folders, arms, accuracies))
    try:
        with files.replacing(path) as file:
            file.write(text)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}.") from None
    return path


def content(
    folders: Sequence[Path], arms: Mapping[str, Series], accuracies: Sequence[float] = ()
) -> dict[str, Any]:
    """All that the page shows, as JSON: arms with their colours, figures, and tables as HTML."""
    looks = dict(zip(arms, styles([s.arm for s in arms.values()]), strict=True))
    names = series.labels(folders)
    shown = [{"name": name, "colour": colour, "dash": dash}
             for name, (colour, dash) in looks.items()]  # fmt: skip
    wanted = targets(arms, accuracies)
    sections = [("Figures of every arm", _figures_of_arms(arms, looks)),
                ("Bytes of every arm", _bytes_of_arms(arms, looks))]  # fmt: skip
    sections += [(f"Upload until {target.accuracy:.4g} % accuracy", _reached(arms, looks, target))
                 for target in wanted]  # fmt: skip
    sections += list(_about(folders, names))
    return {
        "title": ", ".join(names),
        "subtitle": _subtitle(arms, folders),
        "arms": shown,
        "panels": figures.panels(arms),
        "tables": "".join(f"<section><h2>{escape(title)}</h2>{html}</section>"
                          for title, html in sections),
        "ended": all(map(series.summary, folders)),
    }  # fmt: skip


def render(shown: Mapping[str, Any], live: bool = False) -> str:
    """The page as HTML; a live one asks its server for more."""
    web = resources.files("taciturn.report") / "web"

    def part(name: str) -> str:
        return (web / name).read_text("utf-8")

    # In JSON, `<` stands in strings alone; written so, no string can end the script.
    data = json.dumps(shown, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    parts = {
        "title": escape(shown["title"]),
        "version": __version__,
        "style": part("page.css"),
        "plotly": part("plotly-basic.min.js"),
        "script": part("page.js"),
        "data": data,
        "live": "true" if live else "false",
    }
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], part("page.html"))


def targets(arms: Mapping[str, Series], accuracies: Sequence[float] = ()) -> list[Target]:
    """The accuracies that were asked for; or shares of what full communication reached, or of the
    best arm where it did not run."""
    if accuracies:
        return [Target(accuracy, "as asked for") for accuracy in accuracies]
    best = {name: found for name, s in arms.items() if not math.isnan(found := _best(s))}
    if not best:
        return []
    full = [name for name in best if arms[name].arm == "full"]
    name = max(full or best, key=best.__getitem__)
    return [Target(share * best[name], f"{100 * share:g} % of the best of {name}, "
                   f"{best[name]:.2f} %") for share in SHARES]  # fmt: skip


def reached(s: Series, accuracy: float) -> tuple[int, float] | None:
    """The first round, counted from 1, after which the mean over seeds is at least `accuracy`, and
    the bytes uploaded until then, payload and overhead."""
    mean = 100 * s.accuracy.mean(0)
    found = np.flatnonzero(mean >= accuracy)  # NaN, where it was not tested, is not
    return (int(found[0]) + 1, float(s.uploaded[:, found[0]].mean())) if len(found) else None


def command(config: Mapping[str, Any]) -> str:
    """The command line that runs the same again, from a run's settings."""
    words = ["taciturn", "run", str(config.get("task", ""))]
    for key, value in config.items():
        option = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] if value else []
        elif key != "task" and value != []:
            words += [option, *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def _best(s: Series) -> float:
    mean = 100 * s.accuracy.mean(0)
    return float(np.nanmax(mean)) if np.isfinite(mean).any() else math.nan


def _subtitle(arms: Mapping[str, Series], folders: Sequence[Path]) -> str:
    rounds = sorted({s.rounds for s in arms.values()})
    seeds = sorted({len(s.spoke) for s in arms.values()})
    planned = {series.config(folder).get("rounds") for folder in folders}
    of = f" of {_range(sorted(planned))}" if all(planned) and planned != {rounds[-1]} else ""
    text = f"{len(arms)} arm{'s' * (len(arms) > 1)}, {_range(rounds)}{of} rounds, "
    text += f"{_range(seeds)} seed{'s' * (seeds != [1])}"
    return text + ("" if seeds == [1] else "; lines are means over seeds, shades their range")


def _range(numbers: list[Any]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def _figures_of_arms(arms: Mapping[str, Series], looks: Mapping[str, tuple[str, str]]) -> str:
    rows = []
    for name, s in arms.items():
        summary, worst = s.summary(), s.worst_tenth[:, np.isfinite(s.worst_tenth).all(0)]
        rows.append([
            _arm(name, looks[name]),
            _mean(summary["accuracy"]), "" if summary["accuracy"] else _loss(summary["loss_mean"]),
            _difference(summary.get("difference")),
            _floor(summary.get("noise_floor")), _mean(100 * worst[:, -1]) if worst.size else "",
            percent(summary["spoke_share"], ".1f"),
            *(percent(s.ended.get(key), ".1f") for key in ("silent_small", "silent_large")),
            _number(_bits_of_speakers(s), "{:.4g}"),
            f"{s.rejected.sum(1).mean():,.4g}" if np.nansum(s.rejected) else "",
            f"{s.rounds:,}", f"{len(s.spoke)}",
        ])  # fmt: skip
    headings = ["arm", "accuracy", "loss", "difference", "noise floor", "worst tenth", "spoke",
                "silent: small", "silent: large", "bits per weight", "rejected", "rounds",
                "seeds"]  # fmt: skip
    return _table(headings, rows, _NOTE)


def _bytes_of_arms(arms: Mapping[str, Series], looks: Mapping[str, tuple[str, str]]) -> str:
    rows = []
    for name, s in arms.items():
        ways = [float(column.sum(1).mean()) for column in (
            s.bytes_up, s.overhead_up, s.bytes_down, s.overhead_down)]  # fmt: skip
        summary = s.summary()
        rows.append([
            _arm(name, looks[name]), *map(_bytes, ways),
            percent(summary["upload_share"], ".3g"), percent(summary["traffic_share"], ".3g"),
            *(upload_time(ways[0] + ways[1], speed) for speed in SPEEDS),
        ])  # fmt: skip
    headings = ["arm", "payload up", "overhead up", "payload down", "overhead down",
                "upload of full", "both ways of full",
                *(f"upload at {speed} Mbit/s" for speed in SPEEDS)]  # fmt: skip
    return _table(headings, rows, _NOTE_ON_BYTES)


def _reached(
    arms: Mapping[str, Series], looks: Mapping[str, tuple[str, str]], target: Target
) -> str:
    rows = []
    for name, s in arms.items():
        found = reached(s, target.accuracy)
        figures_of = ["not reached"] if found is None else [
            f"{found[0]:,}", _bytes(found[1]),
            *(upload_time(found[1], speed) for speed in SPEEDS)]  # fmt: skip
        rows.append([_arm(name, looks[name]), *figures_of, *[""] * (5 - len(figures_of))])
    headings = ["arm", "round", "uploaded", *(f"at {speed} Mbit/s" for speed in SPEEDS)]
    return _table(headings, rows, f"{target.why[0].upper()}{target.why[1:]}. Uploads are payload "
                  "and overhead of all clients, one after another.")  # fmt: skip


def _about(folders: Sequence[Path], names: list[str]) -> Iterable[tuple[str, str]]:
    """Settings, versions and commands, a column for each folder."""
    configs = [series.config(folder) for folder in folders]
    summaries = [series.summary(folder) for folder in folders]
    policy = [{key: summary[key] for key in _OF_A_FEDERATION if key in summary}
              for summary in summaries]  # fmt: skip
    versions = [v if isinstance(v := summary.get("versions"), dict) else {}
                for summary in summaries]  # fmt: skip
    settings = [config or known for config, known in zip(configs, policy, strict=True)]
    for title, columns in (("Settings", settings), ("Versions", versions)):
        keys = list(dict.fromkeys(key for column in columns for key in column))
        rows = []
        for key in keys:
            values = [escape(_plain(column.get(key, ""))) for column in columns]
            if not any(values):
                continue
            name = escape(key) if len(set(values)) == 1 else f"<strong>{escape(key)}</strong>"
            rows.append([name, *values])
        if rows:
            yield title, _table(["", *map(escape, names)], rows, kind="about")
    commands = [f"<pre>{escape(command(config))}</pre>" for config in configs if config]
    if commands:
        yield "The same again", "".join(dict.fromkeys(commands))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_plain, value))
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _bits_of_speakers(s: Series) -> float:
    whole = ((s.bytes_up_full - s.overhead_up) * s.spoke / s.asked).sum()
    return float(32 * s.bytes_up.sum() / whole) if whole > 0 else math.nan


def _mean(values: Sequence[float] | np.ndarray) -> str:
    """The mean over seeds, and their standard deviation."""
    if not len(values):
        return ""
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread} %"


def _difference(found: Mapping[str, float] | None) -> str:
    return "" if found is None else f"{found['mean']:+.2f} ± {found['half']:.2f}"


def _loss(mean: float | None) -> str:
    return "" if mean is None else f"{mean:.4g}"


def _floor(found: Mapping[str, float] | None) -> str:
    return "" if found is None else f"{found['mean']:.2f} points"


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else form.format(value)


def _bytes(count: float) -> str:
    return (
        "" if math.isnan(count) else f'<span title="{count:,.0f} bytes">{byte_text(count)}</span>'
    )


def _arm(name: str, look: tuple[str, str]) -> str:
    colour, dash = look
    text = escape(name).replace("+", "<wbr>+")
    return f'<i class="line {dash}" style="color: {colour}"></i>{text}'


def _table(
    headings: Sequence[str], rows: list[list[str]], note: str = "", kind: str = "figures"
) -> str:
    """A table of cells that are HTML; columns without a figure are left out."""
    shown = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in rows)]
    head = "".join(f"<th>{headings[i]}</th>" for i in shown)
    body = "".join(
        f"<tr><th>{row[0]}</th>{''.join(f'<td>{row[i]}</td>' for i in shown[1:])}</tr>"
        for row in rows
    )
    table = f"<table class={kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>' + (f"<p>{escape(note)}</p>" if note else "")
