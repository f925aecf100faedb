"""The page of run folders: one HTML file that needs nothing else, and asks no network."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import __version__
from taciturn.report import figures, series
from taciturn.report.series import Series
from taciturn.report.units import byte_text, difference_text, percent, score_text
from taciturn.summary import FULL

SHARES = (0.9, 0.95, 0.99)  # of the best accuracy, to which uploads are counted
_NAMED = 5  # policies, at the most, in a title
_OF_A_FEDERATION = ("task", "rule", "stand_in", "codec")

_NOTE = """\
± is the standard deviation over seeds; of a difference, which is to the first policy of the run,
half of its 95 % interval. The noise floor is how far rounding alone moves the accuracy of a seed,
on average. The worst tenth is the mean accuracy of the clients with the lowest accuracy; silent is
how often clients that answered were silent: of all, the third with the fewest examples and the
third with the most. Bits per weight are those of clients that spoke."""
_NOTE_ON_BYTES = "Sums over rounds and clients, means over seeds; point at one for all its digits."

Row = dict[str, str]  # HTML by heading; what is missing is an empty cell


def content(
    folders: Sequence[Path], arms: Mapping[str, Series], accuracies: Sequence[float] = ()
) -> dict[str, Any]:
    """All that the page shows, as JSON: arms with their colours, figures, and tables as HTML."""
    names, looks = series.labels(folders), figures.styles([s.arm for s in arms.values()])

    def by_arm(row: Callable[[Series], Row], note: str) -> str:
        rows = [{"arm": _arm(name, look)} | row(s)
                for (name, s), look in zip(arms.items(), looks, strict=True)]  # fmt: skip
        return f"{_table(rows)}<p>{escape(note)}</p>"

    sections = {
        "Figures of every arm": by_arm(_figures, _NOTE),
        "Bytes of every arm": by_arm(_bytes_both_ways, _NOTE_ON_BYTES),
    }
    targets, why = (accuracies, "") if accuracies else _targets(arms)
    if targets:
        note = f"Payload and overhead of all clients{why}."
        sections["Upload until an accuracy"] = by_arm(lambda s: _upload_until(s, targets), note)
    configs, ends = list(map(series.config, folders)), list(map(series.summary, folders))
    federations = [{key: end[key] for key in _OF_A_FEDERATION if key in end} for end in ends]
    settings = [config or other for config, other in zip(configs, federations, strict=True)]
    title, subtitle = _titles(arms, settings, names)
    commands = [f"<pre>{escape(command(config))}</pre>" for config in configs if config]
    sections |= {
        "Settings": _beside(names, settings),
        "Versions": _beside(names, [end.get("versions", {}) for end in ends]),
        "The same again": "".join(dict.fromkeys(commands)),
    }
    return {
        "title": title,
        "subtitle": subtitle,
        "savings": "".join(f"<li>{text}</li>" for text in _savings(arms, looks)),
        "arms": [{"name": name, "colour": colour, "dash": dash}
                 for name, (colour, dash) in zip(arms, looks, strict=True)],
        "panels": figures.panels(arms),
        "tables": "".join(f"<section><h2>{escape(title)}</h2>{html}</section>"
                          for title, html in sections.items() if html),
        "ended": all(ends),
    }  # fmt: skip


def render(shown: Mapping[str, Any], live: bool = False) -> str:
    """The page as HTML; a live one asks its server for more."""
    web = resources.files("taciturn.report") / "web"
    parts = {
        "title": escape(shown["title"]),
        "version": __version__,
        "style": (web / "page.css").read_text("utf-8"),
        "plotly": (web / "plotly-basic.min.js").read_text("utf-8"),
        "script": (web / "page.js").read_text("utf-8"),
        # In JSON, `<` stands in strings alone; written so, no string can end the script.
        "data": json.dumps(shown, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        "live": "true" if live else "false",
    }
    page = (web / "page.html").read_text("utf-8")
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], page)


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


def _targets(arms: Mapping[str, Series]) -> tuple[list[float], str]:
    """The accuracies, of 100, until which uploads are counted, and why these: shares of what full
    communication reached, or of the best arm where it did not run."""
    best = {name: 100 * np.nanmax(mean) for name, s in arms.items()
            if np.isfinite(mean := s["accuracy"].mean(0)).any()}  # fmt: skip
    if not best:
        return [], ""
    full = [name for name in best if arms[name].arm == FULL]
    name = max(full or best, key=best.__getitem__)
    shares = ", ".join(f"{100 * share:g}" for share in SHARES)
    why = f", until {shares} % of the best of {name}, {best[name]:.2f} %"
    return [share * best[name] for share in SHARES], why


def _titles(
    arms: Mapping[str, Series], settings: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[str, str]:
    """Tasks and policies; and below them how long they ran, with how many seeds."""
    tasks = sorted({str(own["task"]) for own in settings if own.get("task")})
    policies = dict.fromkeys(s.arm for s in arms.values())
    shown = ", ".join(policies) if len(policies) <= _NAMED else f"{len(policies)} arms"
    rounds, seeds = {s.rounds for s in arms.values()}, {len(s.seeds) for s in arms.values()}
    planned = {own.get("rounds") for own in settings}
    of = f" of {_range(planned)}" if all(planned) and planned != {max(rounds)} else ""
    more = "" if seeds == {1} else "s; lines are means over seeds, shades their range"
    counts = f"{_range(rounds)}{of} rounds, {_range(seeds)} seed{more}"
    return f"{', '.join(tasks or names)}: {shown}", f"{', '.join(names)}: {counts}"


def _savings(arms: Mapping[str, Series], looks: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What each policy uploads of what full communication does, and how far it ends from that."""
    for (name, s), look in zip(arms.items(), looks, strict=True):
        summary, beside = s.summary(), arms.get(f"{name.removesuffix(s.arm)}{FULL}")
        if s.arm == FULL or summary["upload_share"] is None:
            continue
        told, full = score_text(summary), beside.summary() if beside else {}
        if summary["accuracy"] and full.get("accuracy"):
            told = f"{summary['accuracy_mean'] - full['accuracy_mean']:+.2f} points"
            if len(s.seeds) == 1:
                told += " with one seed"
            elif "difference" in summary and "difference" not in full:  # from the first policy
                told = f"{difference_text(summary)} points"
        elif full:
            told += f", full {score_text(full, '')}"
        share = percent(summary["upload_share"], ".3g")
        yield f"{_arm(name, look)} <strong>{share}</strong> of the upload, {told}"


def _range(numbers: set[Any]) -> str:
    return " to ".join(f"{end:,}" for end in sorted({min(numbers), max(numbers)}))


def _figures(s: Series) -> Row:
    summary = s.summary()
    floor = summary.get("noise_floor")
    speakers = float(((s["bytes_up_full"] - s["overhead_up"]) * s["spoke"] / s["asked"]).sum())
    return {
        "accuracy" if summary["accuracy"] else "loss": score_text(summary, ""),
        "difference": difference_text(summary),
        "noise floor": "{mean:.2f} points".format(**floor) if floor else "",
        "worst tenth": percent(summary["worst_tenth"], ".2f"),
        "spoke": percent(summary["spoke_share"], ".1f"),
        "silent: small": percent(s.ended.get("silent_small"), ".1f"),
        "silent: large": percent(s.ended.get("silent_large"), ".1f"),
        "bits per weight": f"{32 * s['bytes_up'].sum() / speakers:.4g}" if speakers > 0 else "",
        "rejected": f"{s['rejected'].sum(1).mean():,.4g}" if s["rejected"].any() else "",
        "rounds": f"{s.rounds:,}",
        "seeds": f"{len(s.seeds)}",
    }


def _bytes_both_ways(s: Series) -> Row:
    summary = s.summary()
    return {
        "payload up": _bytes(s["bytes_up"].sum(1).mean()),
        "overhead up": _bytes(s["overhead_up"].sum(1).mean()),
        "payload down": _bytes(s["bytes_down"].sum(1).mean()),
        "overhead down": _bytes(s["overhead_down"].sum(1).mean()),
        "upload of full": percent(summary["upload_share"], ".3g"),
        "both ways of full": percent(summary["traffic_share"], ".3g"),
    }


def _upload_until(s: Series, accuracies: Sequence[float]) -> Row:
    """The bytes uploaded until the mean over seeds is at least each of these accuracies, and the
    round, counted from 1."""
    row = {}
    for accuracy in accuracies:
        rounds = np.flatnonzero(100 * s["accuracy"].mean(0) >= accuracy)  # NaN, not tested, is not
        row[f"{accuracy:.4g} %"] = "not reached" if not len(rounds) else (
            f"{_bytes(s.uploaded[:, rounds[0]].mean())}, round {rounds[0] + 1:,}"
        )  # fmt: skip
    return row


def _beside(names: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> str:
    """A column of values for each folder; names of those that differ are strong."""
    rows = []
    for key in dict.fromkeys(key for column in columns for key in column):
        values = [escape(_value(column.get(key, ""))) for column in columns]
        name = escape(key) if len(set(values)) == 1 else f"<strong>{escape(key)}</strong>"
        if any(values):
            rows.append({"": name} | dict(zip(map(escape, names), values, strict=True)))
    return _table(rows, kind="about") if rows else ""


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_value, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _bytes(count: float) -> str:
    return f'<span title="{count:,.0f} bytes">{byte_text(count)}</span>'


def _arm(name: str, look: tuple[str, str]) -> str:
    colour, dash = look
    text = escape(name).replace("+", "<wbr>+")
    return f'<i class="line {dash}" style="color: {colour}"></i>{text}'


def _table(rows: list[Row], kind: str = "figures") -> str:
    """A table of these rows; columns without a figure are left out."""
    headings = dict.fromkeys(heading for row in rows for heading in row)
    first, *others = [one for one in headings if any(row.get(one) for row in rows)]
    head = "".join(f"<th>{heading}</th>" for heading in (first, *others))
    body = ""
    for row in rows:
        cells = "".join(f"<td>{row.get(one, '')}</td>" for one in others)
        body += f"<tr><th>{row[first]}</th>{cells}</tr>"
    table = f"<table class={kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'
