"""What people see of a run: a row per round, and what was uploaded."""

import math
from collections.abc import Collection, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any, NamedTuple

from flwr.supercore import log

from taciturn.core.server import RoundInfo
from taciturn.flower.hearing import Heard, Round

_ENOUGH = 10  # rounds after which a run that saves little says so


class Row(NamedTuple):
    """What the history keeps of a round; an app's own columns have other names."""

    round: int
    asked: int
    spoke: int
    silent: int
    rejected: int
    errors: int
    missing: int
    threshold: float
    norm_mean: float
    norm_std: float
    bytes_up: int
    bytes_always: int
    overhead_up: int
    bytes_up_full: int
    bytes_down: int
    overhead_down: int
    bytes_down_full: int


def row(round: int, now: Round, heard: Heard, info: RoundInfo) -> Row:
    return Row(
        round=round,
        asked=len(now.asked),
        spoke=int(info.spoke),
        silent=int(info.silent),
        rejected=heard.rejected,
        errors=heard.errors,
        missing=heard.missing,
        threshold=float(info.threshold),
        norm_mean=float(info.norm_mean),
        norm_std=float(info.norm_std),
        bytes_up=heard.payload_up,
        bytes_always=heard.payload_always,
        overhead_up=heard.bytes_up - heard.payload_up,
        bytes_up_full=heard.bytes_up_full,
        bytes_down=now.payload_down,
        overhead_down=now.bytes_down - now.payload_down,
        bytes_down_full=now.bytes_down_full,
    )


def numbers(
    metrics: Mapping[str, Any], taken: Collection[str], prefix: str = ""
) -> dict[str, float]:
    """The numbers of an app as columns: under their names, unless these are taken; NaN is none."""
    columns = {}
    for key, value in metrics.items():
        if isinstance(value, int | float) and not math.isnan(value):
            name = key if key.startswith(prefix) else prefix + key
            columns[f"app_{name}" if name in taken else name] = float(value)
    return columns


def log_upload(rows: Sequence[Mapping[str, Any]]) -> None:
    """Says what was uploaded in a run, beside what everyone's weights would have taken."""
    messages, own, full = _upload(rows)
    if full:
        log(INFO, "Taciturn: uploaded %s of %s bytes (%.3g %%), of which messages %s, Flower's own "
            "%s.", f"{messages + own:,}", f"{full:,}", 100 * (messages + own) / full,
            f"{messages:,}", f"{own:,}")  # fmt: skip


def warn_of_little_saved(rows: Sequence[Mapping[str, Any]], rounds: int | None) -> None:
    """Says once, early in a run, that more than half of all is uploaded."""
    messages, own, full = _upload(rows)
    if len(rows) == min(_ENOUGH, rounds or _ENOUGH) and messages + own > full / 2:
        log(WARNING, "Taciturn: after %d rounds, the upload is %.3g %% of what it would be if "
            "everyone sent their weights.", len(rows), 100 * (messages + own) / full)  # fmt: skip


def _upload(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """Bytes of what clients said, of what Flower puts around it, and if all had sent weights."""
    messages, own, full = (
        sum(row[key] for row in rows) for key in ("bytes_up", "overhead_up", "bytes_up_full")
    )
    return messages, own, full
