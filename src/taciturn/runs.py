"""Run folders: configuration, metrics, weights, checkpoints.

Every file is written beside its place and then renamed onto it: a reader, or a run that goes on
after a crash, sees the old file or the new one and never half of either.
"""

from __future__ import annotations

import csv
import json
import math
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from taciturn.errors import RunError


def create(out: Path | None, task: str) -> Path:
    """A new, empty run folder: `out`, or one under `runs/` named after task and time."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise RunError(f"{out} is already there and not an empty folder.")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{out} cannot be made: {error.strerror}.") from None
        return out
    name = f"{task}-{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        folder = Path("runs") / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"{folder} cannot be made: {error.strerror}.") from None
        return folder
    raise RunError(f"runs/{name} and a thousand like it are already there.")


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write that takes the place of `path` when the block ends without an error."""
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, mode, **text) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as file:
        file.write(to_json(value) + "\n")


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON as the standard has it: what is not a finite number becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with a header; numbers that are not there are left empty."""
    with replacing(path) as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: "" if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
            for row in rows
        )


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    """A flat table of strings, numbers, flags and lists of these; what is None is left out."""
    with replacing(path) as file:
        for key, value in values.items():
            if value is not None:
                # JSON's numbers, strings, flags and lists are TOML's, but for infinity.
                text = "inf" if value == math.inf else json.dumps(value, ensure_ascii=False)
                file.write(f"{key} = {text}\n")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Named arrays as safetensors."""
    with replacing(path, "wb") as file:
        file.write(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
