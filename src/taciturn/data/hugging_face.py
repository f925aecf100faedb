"""Data sets of the Hugging Face Hub, by client: a table with a column that names the client."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, Examples, by_client, collect
from taciturn.errors import DataError, require

Parse = Callable[[str, str, list[Any], list[Any]], Examples]  # (data set, client, x, y)
ROWS = 4_096  # taken from the table at a time


def table(name: str) -> Any:
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


def load(name: str, columns: tuple[str, str, str], parse: Parse) -> Dataset:
    """The table `name` by client, parsed once.

    The cache of a folder notices when its files change; that of a table of the Hub stands until the
    cache folder is emptied.

    Args:
      name: of a table of the Hub, or its folder.
      columns: the names of the columns with the client, the input and the label.
      parse: makes arrays of some inputs and labels of one client.
    """
    folder = Path(name)
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    key = f"huggingface-{folder.name if files else name.replace('/', '--')}"
    return cached(key, files, lambda: _read(name, columns, parse))


def _read(name: str, columns: tuple[str, str, str], parse: Parse) -> Dataset:
    def parts() -> Iterator[tuple[str, Examples]]:
        for block in table(name).iter(ROWS):
            for column in columns:
                if column not in block:
                    raise DataError(f"{name} has no column `{column}`; it has {', '.join(block)}.")
            whose, x, y = (block[column] for column in columns)
            rows: dict[str, list[int]] = {}
            for row, client in enumerate(whose):
                rows.setdefault(str(client), []).append(row)
            for client, own in rows.items():
                yield client, parse(name, client, [x[i] for i in own], [y[i] for i in own])

    return collect(name, by_client(parts()), None)
