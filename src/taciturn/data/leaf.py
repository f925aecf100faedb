"""LEAF's JSON layout: `users`, `num_samples` and `user_data`, in any number of files of a folder.

LEAF writes `train/*.json` and `test/*.json`; a folder with `*.json` alone has no test split.

References:
  Caldas et al. LEAF: A Benchmark for Federated Settings, 2018.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, Examples, by_client, collect, wrong
from taciturn.errors import DataError

Files = tuple[list[Path], list[Path]]  # of training and of test examples
Parse = Callable[[Path, str, list[Any], list[Any]], Examples]  # (file, client, x, y)


def find(folders: Iterable[Path]) -> Files | None:
    """The files of the first of these folders that has LEAF's layout."""
    for folder in folders:
        train, test = (sorted((folder / part).glob("*.json")) for part in ("train", "test"))
        if not train:
            train, test = sorted(folder.glob("*.json")), []
        if train:
            return train, test
    return None


def load(name: str, files: Files, parse: Parse) -> Dataset:
    """The clients of these files, parsed once; those of one name are one client."""
    train, test = files

    def read(paths: list[Path]) -> dict[str, Examples]:
        return by_client(pair for path in paths for pair in _clients(path, parse))

    def build() -> Dataset:
        return collect(train[0].parent, read(train), read(test) if test else None)

    return cached(name, train + test, build)


def _clients(path: Path, parse: Parse) -> Iterator[tuple[str, Examples]]:
    """The name and the examples of each client of a file."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is no whole JSON file: {error}.") from None
    for key in ("users", "num_samples", "user_data"):
        if not isinstance(content, dict) or key not in content:
            raise DataError(f"{path} has no `{key}`; it is not in LEAF's layout.")
    users, counts = content["users"], content["num_samples"]
    for key, value in (("users", users), ("num_samples", counts)):
        if not isinstance(value, list):
            raise DataError(f"{path}: `{key}` must be a list, got {value!r:.50}.")
    if len(users) != len(counts):
        raise DataError(f"{path} names {len(users)} users and the row counts of {len(counts)}.")
    for client, count in zip(users, counts, strict=True):
        try:
            x, y = (content["user_data"][client][key] for key in "xy")
        except (KeyError, TypeError):
            x = y = None
        if not (isinstance(x, list) and isinstance(y, list)):
            raise wrong(path, client, "has no lists `x` and `y` in `user_data`")
        if (len(x), len(y)) != (count, count):
            seen = f"{len(x)} `x` and {len(y)} `y`"
            raise wrong(path, client, f"must have {count} examples, got {seen}")
        yield client, parse(path, client, x, y)
