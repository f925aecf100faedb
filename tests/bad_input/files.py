"""Files that are wrong, each in one way, by name; a case of the command line has it in braces."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

OF_TASKS = {  # files that each task refuses
    "npz": "missing empty text npz_cut npz_zero_bytes npz_without_y npz_without_client "
    "npz_scalar_x npz_scalar_y npz_scalar_client npz_no_examples npz_no_features npz_text_x "
    "npz_nan_x npz_large_x npz_float_y npz_matrix_y npz_negative_y npz_y_2_40 npz_y_5e6 "
    "npz_short_y npz_short_client npz_float_client npz_x_test_alone npz_y_test_alone "
    "npz_test_lengths npz_test_shape npz_test_labels npz_test_empty npz_pickle npz_giant_header "
    "npz_giant_rank npz_bomb npz_encrypted",
    "folder": "missing empty text folder_without_y folder_of_text folder_giant_header "
    "folder_test_alone folder_shapes folder_empty_clients",
    "idx": "missing text empty idx_cut idx_longer idx_text idx_giant_header idx_giant_rank "
    "idx_bomb idx_longer_gzip idx_half_gzip idx_no_gzip idx_labels idx_lengths idx_no_images "
    "idx_twice idx_floats",
    "emnist": "empty text tff_text tff_no_group tff_no_label tff_shapes tff_labels tff_nan "
    "leaf_ragged_labels leaf_null_pixels",
    "shakespeare": "empty shakespeare_numbers",
    "shakespeare-leaf": "empty leaf_null leaf_text leaf_deep leaf_null_users leaf_null_data "
    "leaf_null_x leaf_null_text leaf_short_text leaf_counts leaf_few_counts",
}

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])
CLIENT = np.array([1, 0, 1, 0, 1, 1])

NPZ: dict[str, dict[str, Any]] = {  # what is other than in a good file; None is left out
    "npz": {},
    "npz_without_y": {"y": None},
    "npz_without_client": {"client": None},
    "npz_scalar_x": {"x": np.float64(1)},
    "npz_scalar_y": {"y": np.int64(1)},
    "npz_scalar_client": {"client": np.int64(1)},
    "npz_no_examples": {"x": X[:0], "y": Y[:0], "client": CLIENT[:0]},
    "npz_no_features": {"x": X[:, :0]},
    "npz_text_x": {"x": X.astype(str)},
    "npz_nan_x": {"x": np.where(X > 3, np.nan, X)},
    "npz_large_x": {"x": X * 1e300},
    "npz_float_y": {"y": Y / 2},
    "npz_matrix_y": {"y": Y[:, None]},
    "npz_negative_y": {"y": Y - 1},
    "npz_y_2_40": {"y": Y + 2**40},
    "npz_y_5e6": {"y": Y * 2_500_000},
    "npz_short_y": {"y": Y[:5]},
    "npz_short_client": {"client": CLIENT[:5]},
    "npz_float_client": {"client": CLIENT / 2},
    "npz_x_test_alone": {"x_test": X},
    "npz_y_test_alone": {"y_test": Y},
    "npz_test_lengths": {"x_test": X, "y_test": Y[:5]},
    "npz_test_shape": {"x_test": X[:, :1], "y_test": Y},
    "npz_test_labels": {"x_test": X, "y_test": Y + 1},
    "npz_test_empty": {"x_test": X[:0], "y_test": Y[:0]},
    "npz_pickle": {"x": np.array([{}] * 6, object)},
    "npz_one_row_each": {"client": np.arange(6)},
}


def npy(shape: Any, content: bytes = b"") -> bytes:
    """A file of float64 that says it has this shape."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def idx(shape: Any, content: bytes | None = None, dtype: int = 8) -> bytes:
    head = bytes([0, 0, dtype, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return head + (bytes(int(np.prod(shape))) if content is None else content)


IDX = {
    "train-images.idx": idx((3, 2, 2)),
    "train-labels.idx": idx((3,)),
    "t10k-images.idx": idx((3, 2, 2)),
    "t10k-labels.idx": idx((3,)),
}
IMAGES = "train-images.idx"
IDX_SETS: dict[str, dict[str, bytes]] = {  # files other than in a good set
    "idx": {},
    "idx_cut": {IMAGES: idx((3, 2, 2))[:-1]},
    "idx_longer": {IMAGES: idx((3, 2, 2)) + b"x"},
    "idx_text": {IMAGES: b"hello there"},
    "idx_giant_header": {IMAGES: idx((2**31, 2**31, 2**31), b"")},
    "idx_giant_rank": {IMAGES: bytes([0, 0, 8, 255]) + bytes(4 * 255)},
    "idx_labels": {"train-labels.idx": idx((3,), np.array([0, 0, 5_000_000], ">i4").tobytes(), 12)},
    "idx_lengths": {"train-labels.idx": idx((2,))},
    "idx_no_images": {IMAGES: idx((0, 2, 2)), "train-labels.idx": idx((0,))},
    "idx_twice": {"other-train-images.idx": idx((3, 2, 2))},
    "idx_floats": {IMAGES: idx((3, 2), bytes(24), 13)},
}
GZIP_SETS = {
    "idx_bomb": lambda: gzip.compress(
        idx((11, 10_000, 10_000), np.random.default_rng(0).bytes(1_200_000)), 1
    ),
    "idx_longer_gzip": lambda: gzip.compress(idx((3, 2, 2)) + bytes(10)),
    "idx_half_gzip": lambda: gzip.compress(idx((3, 2, 2)))[:-12],
    "idx_no_gzip": lambda: idx((3, 2, 2)),
}

TEXT = "a" * 80
LEAF: dict[str, Any] = {  # the content of a JSON file
    "leaf_null": None,
    "leaf_null_users": {"users": None, "num_samples": [], "user_data": {}},
    "leaf_null_data": {"users": ["a"], "num_samples": [1], "user_data": None},
    "leaf_null_x": {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": None, "y": [1]}}},
    "leaf_null_text": {"users": ["a"], "num_samples": [1],
                       "user_data": {"a": {"x": [None], "y": ["b"]}}},
    "leaf_short_text": {"users": ["a"], "num_samples": [1],
                        "user_data": {"a": {"x": ["short"], "y": ["b"]}}},
    "leaf_counts": {"users": ["a"], "num_samples": [2],
                    "user_data": {"a": {"x": [TEXT], "y": ["b"]}}},
    "leaf_few_counts": {"users": ["a"], "num_samples": [], "user_data": {}},
    "leaf_ragged_labels": {"users": ["a"], "num_samples": [2],
                           "user_data": {"a": {"x": [[0] * 784] * 2, "y": [[1], [1, 2]]}}},
    "leaf_null_pixels": {"users": ["a"], "num_samples": [1],
                         "user_data": {"a": {"x": [[None] * 784], "y": [1]}}},
}  # fmt: skip

TABLES = {
    "toml_unknown": "rouns = 3\n",
    "toml_word": "rounds = 'many'\n",
    "toml_empty_list": "lr = []\n",
    "csv": "user,y,a\nann,0,1\nann,1,2\nbob,0,3\nbob,1,4\n",
    "csv_cut": "user,y,a\nann,0,1\nann,1",
    "csv_empty_cell": "user,y,a\nann,0,1\nann,1,\nbob,0,3\n",
}

HEAD = "arm,seed,round,spoke,threshold,bytes_up,overhead_up,accuracy\n"
ROW = "full,0,{},4,,100,16,0.5\n"
RUNS = {  # the content of metrics.csv
    "run": HEAD + ROW.format(0) + ROW.format(1),
    "run_without_rows": HEAD,
    "run_of_other_columns": "arm,round\nfull,0\n",
    "run_cut_in_the_middle": HEAD + ROW.format(0) + "full,0,1,4,,100\n" + ROW.format(2),
    "run_without_bytes": HEAD + "full,0,0,4,,,16,0.5\n" + ROW.format(1),
    "run_with_words": HEAD + "full,0,0,many,,100,16,0.5\n",
    "run_in_latin": HEAD + "föll,0,0,4,,100,16,0.5\n",
}


def make(root: Path) -> dict[str, Path]:
    """All of them, below `root`, by name."""
    found: dict[str, Path] = {name: root / name for name in ("missing", "new")}
    found["not_utf8"] = Path(str(root / "caf") + "\udce9")

    def put(name: str, write: Callable[[Path], Any]) -> None:
        found[name] = root / name
        write(found[name])

    put("empty", lambda path: path.mkdir())
    put("text", lambda path: path.write_text("hello"))
    put("folder", lambda path: (path.mkdir(), (path / "a").write_text("a")))
    for name, changes in NPZ.items():
        arrays = {"x": X, "y": Y, "client": CLIENT} | changes
        arrays = {key: value for key, value in arrays.items() if value is not None}
        put(name, lambda path, arrays=arrays: _savez(path, arrays))
    good = found["npz"].read_bytes()
    put("npz_cut", lambda path: path.write_bytes(good[:-30]))
    put("npz_zero_bytes", lambda path: path.write_bytes(b""))
    put("npz_bomb", lambda path: path.write_bytes(
        _patched(good, b"PK\1\2", 24, struct.pack("<I", 0xFFFFFFF0))))  # fmt: skip
    locked = _patched(good, b"PK\1\2", 8, b"\1\0")
    put("npz_encrypted", lambda path: path.write_bytes(_patched(locked, b"PK\3\4", 6, b"\1\0")))
    for name, shape in (("giant_header", (10**15,)), ("giant_rank", (1,) * 100)):
        put(f"npz_{name}", lambda path, shape=shape: _zip(path, npy(shape, bytes(8))))
    _folders(put)
    for name, changes in IDX_SETS.items():
        put(name, lambda path, changes=changes: _folder(path, IDX | changes))
    for name, content in GZIP_SETS.items():
        others = {key: value for key, value in IDX.items() if key != IMAGES}
        packed = {f"{IMAGES}.gz": content()}
        put(name, lambda path, packed=packed, others=others: _folder(path, others | packed))
    for name, value in LEAF.items():
        text = json.dumps(value).encode()
        put(name, lambda path, text=text: _folder(path, {"all.json": text}))
    put("leaf_text", lambda path: _folder(path, {"all.json": b"{"}))
    put("leaf_deep", lambda path: _folder(path, {"all.json": b"[" * 200_000}))
    _tff(put)
    for name, text in TABLES.items():
        put(name, lambda path, text=text: path.write_text(text))
    for name, text in RUNS.items():
        code = "latin-1" if name.endswith("latin") else "utf-8"
        content = {"metrics.csv": text.encode(code)}
        put(name, lambda path, content=content: _folder(path, content))
    return found


def _folders(put: Callable[..., None]) -> None:
    good = {"x.npy": npy((6, 2), X.tobytes())}
    labels = npy((6,), bytes(48)).replace(b"<f8", b"<i8")
    pair = good | {"y.npy": labels}
    for name, files in {
        "without_y": good,
        "of_text": {"x.npy": b"hello", "y.npy": labels},
        "giant_header": {"x.npy": npy((10**15,)), "y.npy": labels},
        "test_alone": pair | {"y_test.npy": labels},
        "empty_clients": {"x.npy": npy((0, 2)), "y.npy": npy((0,)).replace(b"<f8", b"<i8")},
    }.items():
        put(f"folder_{name}", lambda path, files=files: _folder(path / "anna", files))
    other = pair | {"x.npy": npy((6, 1), bytes(48))}
    put("folder_shapes", lambda path: (_folder(path / "anna", pair), _folder(path / "bert", other)))


def _tff(put: Callable[..., None]) -> None:
    images, labels = np.zeros((2, 28, 28), np.float32), np.zeros(2, np.int32)

    def emnist(
        pixels: Any = images, label: Any = labels, group: str = "examples"
    ) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            path.mkdir()
            for part in ("train", "test"):
                with h5py.File(path / f"fed_emnist_{part}.h5", "w") as file:
                    client = file.create_group(f"{group}/f0")
                    for key, value in (("pixels", pixels), ("label", label)):
                        if value is not None:
                            client[key] = value

        return write

    both = {f"fed_emnist_{part}.h5": b"hello" for part in ("train", "test")}
    put("tff_text", lambda path: _folder(path, both))
    put("tff_no_group", emnist(group="others"))
    put("tff_no_label", emnist(label=None))
    put("tff_shapes", emnist(pixels=np.zeros((2, 27, 28), np.float32)))
    put("tff_labels", emnist(label=np.array([0, 62], np.int32)))
    put("tff_nan", emnist(pixels=np.full((2, 28, 28), np.nan, np.float32)))

    def shakespeare(path: Path) -> None:
        path.mkdir()
        for part in ("train", "test"):
            with h5py.File(path / f"shakespeare_{part}.h5", "w") as file:
                file["examples/a/snippets"] = np.arange(3)

    put("shakespeare_numbers", shakespeare)


def _folder(path: Path, files: dict[str, bytes]) -> None:
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_bytes(content)


def _savez(path: Path, arrays: dict[str, Any]) -> None:
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def _zip(path: Path, x: bytes) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", x)


def _patched(content: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """Other bytes at a place of the first record of a zip file that begins so."""
    at = content.index(signature) + offset
    return content[:at] + value + content[at + len(value) :]
