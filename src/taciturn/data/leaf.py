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
from taciturn.data.dataset import Dataset, Examples, collect, join, wrong
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

    def build() -> Dataset:
        return collect(train[0].parent, _read(train, parse), _read(test, parse) if test else None)

    return cached(name, train + test, build)


def _read(paths: list[Path], parse: Parse) -> dict[str, Examples]:
    clients: dict[str, list[Examples]] = {}
    for path in paths:
        for client, x, y in _clients(path):
            clients.setdefault(client, []).append(parse(path, client, x, y))
    return {client: join(parts) for client, parts in clients.items()}


def _clients(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """The name, inputs and labels of each client of a file."""
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
            x, y = content["user_data"][client]["x"], content["user_data"][client]["y"]
            if not isinstance(x, list) or not isinstance(y, list):
                raise TypeError
        except (KeyError, TypeError):
            raise wrong(path, client, "has no lists `x` and `y` in `user_data`") from None
        if (len(x), len(y)) != (count, count):
            seen = f"{len(x)} `x` and {len(y)} `y`"
            raise wrong(path, client, f"must have {count} examples, got {seen}")
        yield client, x, y
