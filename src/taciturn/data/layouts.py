"""Data by client in three layouts: TFF's HDF5 files, LEAF's JSON, tables of the Hugging Face Hub.

A reader is given `parse`, which makes arrays of the inputs and labels of one client.

References:
  Caldas et al. LEAF: A Benchmark for Federated Settings, 2018.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data import sources
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, Examples, collect, naming
from taciturn.errors import DataError, require

Parse = Callable[..., Examples]
Client = tuple[str, Examples]  # name and examples
_ROWS = 4_096  # taken from a table of the Hub at a time


def read_tff(path: Path, features: tuple[str, ...], parse: Parse) -> Iterator[Client]:
    """Each client of an HDF5 file with `examples/<client>/<feature>`."""
    h5py = require("h5py", "data")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} is no whole HDF5 file: {error}.") from None
    with file:
        if "examples" not in file:
            raise DataError(f"{path} has no group `examples`; it has {sorted(file) or 'nothing'}.")
        for client in file["examples"]:
            with naming(f"{path}, client `{client}`"):
                try:
                    arrays = [file["examples"][client][feature][()] for feature in features]
                except (KeyError, AttributeError, TypeError, ValueError):
                    raise DataError(f"{' or '.join(features)} is missing.") from None
                except (OSError, RuntimeError) as error:
                    raise DataError(f"cannot be read: {error}.") from None
                shapes = dict(zip(features, map(np.shape, arrays), strict=True))
                lengths = {shape[:1] for shape in shapes.values()}
                if len(lengths) > 1 or () in lengths:
                    raise DataError(f"every feature needs one entry per example, got {shapes}.")
                examples = parse(*arrays)
            yield client, examples


def read_leaf(name: str, folders: Iterable[Path], parse: Parse) -> Dataset | None:
    """The clients of LEAF's JSON files, parsed once, in the first of these folders that has any.

    LEAF writes `train/*.json` and `test/*.json`; a folder with `*.json` alone has no test set.
    Users of one name are one client.
    """
    for folder in folders:
        train, test = (sorted((folder / part).glob("*.json")) for part in ("train", "test"))
        if not train:
            train, test = sorted(folder.glob("*.json")), []
        if train:
            own, tested = _leaf_clients(train, parse), _leaf_clients(test, parse) if test else None
            return cached(name, train + test, partial(collect, train[0].parent, own, tested))
    return None


def _leaf_clients(paths: list[Path], parse: Parse) -> Iterator[Client]:
    for path in paths:
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} is no whole JSON file: {error}.") from None
        for key, kind in (("users", list), ("num_samples", list), ("user_data", dict)):
            if not isinstance(content, dict) or not isinstance(content.get(key), kind):
                raise DataError(f"{path} has no {kind.__name__} `{key}`; it is not LEAF's layout.")
        users, counts = content["users"], content["num_samples"]
        if len(users) != len(counts):
            raise DataError(f"{path} names {len(users)} users and the row counts of {len(counts)}.")
        for client, count in zip(map(str, users), counts, strict=True):
            with naming(f"{path}, client `{client}`"):
                own = content["user_data"].get(client)
                x, y = (own.get(key) if isinstance(own, dict) else None for key in "xy")
                if not (isinstance(x, list) and isinstance(y, list)):
                    raise DataError("has no lists `x` and `y` in `user_data`.")
                if (len(x), len(y)) != (count, count):
                    raise DataError(f"must have {count} examples, got {len(x)} `x`, {len(y)} `y`.")
                examples = parse(x, y)
            yield client, examples


def load_table(name: str) -> Any:
    """The table `name` of the Hub, or of a folder, as `datasets` loads, downloads and caches it."""
    datasets = require("datasets", "data")
    try:
        return datasets.load_dataset(name, split="train")
    except Exception as error:  # the library raises a tree of its own and of its dependencies'
        reason = str(error).rstrip(".")
        raise DataError(
            f"{name} cannot be loaded from the Hugging Face Hub: {reason}. To bring it by hand: "
            f"download its files on a machine that is online, and name their folder as `data`."
        ) from None


def read_hub(task: str, data: Any, columns: tuple[str, str, str], parse: Parse) -> Dataset:
    """The task's table of the Hub, or another one or the folder that `data` names, parsed once.

    `columns` have the client, the input and the label. The cache of a folder notices when its files
    change; that of a table of the Hub stands until the cache folder is emptied.
    """
    name = sources.HUGGING_FACE[task] if data is None else str(data)
    folder = Path(name)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    key = f"huggingface-{folder.name if files else name.replace('/', '--')}"
    return cached(key, files, lambda: collect(name, _hub_clients(name, columns, parse)))


def _hub_clients(name: str, columns: tuple[str, str, str], parse: Parse) -> Iterator[Client]:
    """The clients of each block of rows: one may come several times."""
    for block in load_table(name).iter(_ROWS):
        for column in columns:
            if column not in block:
                raise DataError(f"{name} has no column `{column}`; it has {', '.join(block)}.")
        whose, x, y = (block[column] for column in columns)
        rows: dict[str, list[int]] = {}
        for row, client in enumerate(whose):
            rows.setdefault(str(client), []).append(row)
        for client, own in rows.items():
            with naming(f"{name}, client `{client}`"):
                examples = parse([x[i] for i in own], [y[i] for i in own])
            yield client, examples
