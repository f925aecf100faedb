"""TensorFlow Federated's HDF5 layout: `examples/<client>/<feature>`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from taciturn.data.dataset import Examples, wrong
from taciturn.errors import DataError, require

Parse = Callable[[Path, str, dict[str, np.ndarray]], Examples]  # (file, client, features)


def read(
    path: Path, features: tuple[str, ...], parse: Parse, wanted: Callable[[str], bool] | None = None
) -> dict[str, Examples]:
    """The examples of all clients in a file, or of those `wanted`, as `parse` makes them."""
    h5py = require("h5py", "data")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} is no whole HDF5 file: {error}.") from None
    with file:
        if "examples" not in file:
            raise DataError(f"{path} has no group `examples`; it has {sorted(file) or 'nothing'}.")
        clients = file["examples"]
        return {
            name: _client(path, name, clients, features, parse) for name in filter(wanted, clients)
        }


def _client(
    path: Path, name: str, clients: object, features: tuple[str, ...], parse: Parse
) -> Examples:
    try:
        group = clients[name]  # type: ignore[index]
        arrays = {feature: group[feature][()] for feature in features}
    except (KeyError, AttributeError, TypeError, ValueError):
        raise wrong(path, name, f"{' or '.join(features)} is missing") from None
    except (OSError, RuntimeError) as error:
        raise wrong(path, name, f"cannot be read: {error}") from None
    lengths = {np.shape(array)[:1] for array in arrays.values()}
    if len(lengths) > 1 or () in lengths:
        seen = ", ".join(f"{feature} {np.shape(array)}" for feature, array in arrays.items())
        raise wrong(path, name, f"every feature needs one entry per example, got {seen}")
    return parse(path, name, arrays)
