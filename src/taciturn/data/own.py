"""Data that people have themselves: one `npz` file, or a folder of arrays for every client."""

import zipfile
from pathlib import Path

import numpy as np

from taciturn.data.dataset import Dataset, Examples, check_labels, collect
from taciturn.errors import DataError


def read_npz(path: Path) -> Dataset:
    """The examples of an `npz` file, grouped by client in the order of their names."""
    try:
        # Opened here: NumPy leaves the file open when it turns out to be no archive.
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no whole npz file without pickles: {error}.") from None
    for key in ("x", "y", "client"):
        if key not in arrays:
            raise DataError(f"{path} has no array `{key}`; it has {', '.join(arrays) or 'none'}.")
    whose = arrays["client"]
    if whose.ndim != 1 or whose.dtype.kind not in "iuSU":
        raise DataError(
            f"{path}: `client` must be a number or a name for each example, got {whose.dtype} of "
            f"shape {whose.shape}."
        )
    if len(whose) != len(arrays["x"]):
        raise DataError(f"{path} has {len(arrays['x'])} `x` and the clients of {len(whose)}.")
    everyone = _examples(path, "all", arrays["x"], arrays["y"])
    names, owners = np.unique(whose, return_inverse=True)
    rows = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
    train = {
        str(name): {key: array[mine] for key, array in everyone.items()}
        for name, mine in zip(names, rows, strict=True)
    }
    dataset = collect(path, train, None, _classes(everyone["y"]))
    if "x_test" not in arrays or "y_test" not in arrays:
        return dataset
    test = _examples(path, "x_test", arrays["x_test"], arrays["y_test"], dataset.counts["classes"])
    _check_alike(path, "x_test", test, everyone)
    return Dataset(dataset.names, dataset.train, dataset.rows, dict(test), 0, dataset.counts)


def read_folder(root: Path) -> Dataset:
    """The clients of a folder of folders, by name."""
    train: dict[str, Examples] = {}
    test: dict[str, Examples] = {}
    for place in sorted(path for path in root.iterdir() if path.is_dir()):
        for split, suffix in ((train, ""), (test, "_test")):
            files = [place / f"{key}{suffix}.npy" for key in ("x", "y")]
            if suffix and not any(file.exists() for file in files):
                continue
            split[place.name] = _examples(place, place.name, _load(files[0]), _load(files[1]))
    first = next(iter(train.values()), None)
    if first is None:
        raise DataError(f"{root} has no folders with x.npy and y.npy, one per client.")
    for name, examples in [*train.items(), *test.items()]:
        _check_alike(root / name, name, examples, first)
    counts = _classes(np.concatenate([examples["y"] for examples in train.values()]))
    for name, examples in test.items():
        check_labels(root / name, name, examples["y"], counts["classes"])
    return collect(root, train, test or None, counts)


def _load(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None


def _examples(
    place: Path, client: str, x: np.ndarray, y: np.ndarray, classes: int = 2**31 - 1
) -> Examples:
    if x.ndim < 1 or x.dtype.kind not in "uif":
        raise DataError(
            f"{place}, client `{client}`: `x` must be numbers, one entry per example, "
            f"got {x.dtype} of shape {x.shape}."
        )
    labels = check_labels(place, client, y, classes)
    if len(x) != len(labels):
        raise DataError(f"{place}, client `{client}`: {len(x)} `x` and {len(labels)} `y`.")
    # Bytes stay bytes, a quarter of the memory; all else is computed with in float32.
    x = x if x.dtype == np.uint8 else x.astype(np.float32)
    if x.dtype != np.uint8 and not np.isfinite(x).all():
        raise DataError(f"{place}, client `{client}`: `x` must be finite.")
    return {"x": x, "y": labels}


def _check_alike(place: Path, client: str, examples: Examples, first: Examples) -> None:
    seen, wanted = examples["x"], first["x"]
    if seen.shape[1:] != wanted.shape[1:] or seen.dtype != wanted.dtype:
        raise DataError(
            f"{place}, client `{client}`: `x` is {seen.dtype} of {seen.shape[1:]}, that of others "
            f"{wanted.dtype} of {wanted.shape[1:]}."
        )


def _classes(labels: np.ndarray) -> dict[str, int]:
    return {"classes": int(labels.max()) + 1 if labels.size else 1}
