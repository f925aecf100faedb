"""Histories as files: what a comparison in Python found, kept in a folder and read back.

The folder has `metrics.csv`, as that of `taciturn run`, so that `taciturn report` shows it; all
arrays as they are, the weights among them, in `histories.safetensors`; the rest in
`histories.json`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import runs
from taciturn.checks import path_of
from taciturn.core.policy import parse
from taciturn.errors import InputError, RunError, UnknownName
from taciturn.sim.history import History

_PLAIN = ("seeds", "cohort", "size")


def save(histories: Mapping[str, History], folder: str | Path) -> Path:
    """Keeps histories, such as `compare` returns, in a new folder."""
    if not isinstance(histories, Mapping) or not histories:
        raise InputError(f"`histories` must be what `compare` returns, got {histories!r:.60}.")
    made = runs.create(path_of("folder", folder), "")
    about, arrays = [], {}
    for i, (name, history) in enumerate(histories.items()):
        if not isinstance(history, History):
            raise InputError(f"`histories[{name!r}]` must be a History, got {history!r:.60}.")
        about.append(
            {"arm": name, "policy": str(history.policy)}
            | {key: getattr(history, key) for key in _PLAIN}
        )
        for key, value in vars(history).items():
            if isinstance(value, np.ndarray):
                arrays[f"{i}.{key}"] = value
    rows = [{"arm": name} | row for name, h in histories.items() for row in h.rows()]
    runs.write_csv(made / "metrics.csv", rows)
    runs.write_arrays(made / "histories.safetensors", arrays)
    runs.write_json(made / "histories.json", about)
    return made


def saved(folder: str | Path) -> dict[str, History]:
    """The histories that `save` has kept in a folder.

    A part of your own must have its name (`taciturn.register`) before it can be read back.
    """
    place = path_of("folder", folder)
    about: Any = runs.read_json(place / "histories.json")
    arrays = runs.read_arrays(place / "histories.safetensors")
    try:
        return {
            one["arm"]: History(
                policy=parse(one["policy"]),
                seeds=tuple(one["seeds"]),
                cohort=one["cohort"],
                size=one["size"],
                **{
                    key.partition(".")[2]: value
                    for key, value in arrays.items()
                    if key.partition(".")[0] == str(i)
                },
            )
            for i, one in enumerate(about)
        }
    except UnknownName as error:
        raise RunError(
            f"{place} has a part that is not known: {error} One of your own needs "
            f"`taciturn.register` first."
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{place} cannot be read as histories: {error!r}.") from None
