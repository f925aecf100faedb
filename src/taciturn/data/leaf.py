"""LEAF's JSON layout: `users`, `num_samples` and `user_data`, in any number of files of a folder.

LEAF writes `train/*.json` and `test/*.json`; a folder with `*.json` alone has no test split.

References:
  Caldas et al. LEAF: A Benchmark for Federated Settings, 2018.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data.dataset import Dataset, Examples, collect
from taciturn.errors import DataError

Parse = Callable[[Path, str, list[Any], list[Any]], Examples]  # (file, client, x, y)


def find(folders: Iterable[Path]) -> tuple[list[Path], list[Path]] | None:
    """The training and test files of the first of these folders that has LEAF's layout."""
    for folder in folders:
        train, test = (sorted((folder / part).glob("*.json")) for part in ("train", "test"))
        if not train:
            train, test = sorted(folder.glob("*.json")), []
        if train:
            return train, test
    return None


def read(train: list[Path], test: list[Path], parse: Parse) -> Dataset:
    """The clients of these files; the examples of one that is in several files are joined."""
    return collect(train[0].parent, _read(train, parse), _read(test, parse) if test else None)


def _read(paths: list[Path], parse: Parse) -> dict[str, Examples]:
    clients: dict[str, Examples] = {}
    for path in paths:
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} is no whole JSON file: {error}.") from None
        for key in ("users", "num_samples", "user_data"):
            if not isinstance(content, dict) or key not in content:
                raise DataError(f"{path} has no `{key}`; it is not in LEAF's layout.")
        for key in ("users", "num_samples"):
            if not isinstance(content[key], list):
                raise DataError(f"{path}: `{key}` must be a list, got {content[key]!r:.50}.")
        if len(content["users"]) != len(content["num_samples"]):
            raise DataError(
                f"{path} names {len(content['users'])} users and the row counts of "
                f"{len(content['num_samples'])}."
            )
        for client, count in zip(content["users"], content["num_samples"], strict=True):
            where = f"{path}, client `{client}`:"
            try:
                x, y = content["user_data"][client]["x"], content["user_data"][client]["y"]
                if not isinstance(x, list) or not isinstance(y, list):
                    raise TypeError
            except (KeyError, TypeError):
                raise DataError(f"{where} has no lists `x` and `y` in `user_data`.") from None
            if (len(x), len(y)) != (count, count):
                raise DataError(
                    f"{where} must have {count} examples, got {len(x)} `x` and {len(y)} `y`."
                )
            examples = parse(path, client, x, y)
            if client in clients:
                before = clients[client]
                examples = {key: np.concatenate([before[key], examples[key]]) for key in before}
            clients[client] = examples
    return clients
