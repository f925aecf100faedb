"""Files that are wrong, each in one way, by name; a case of the command line has it in braces."""

import gzip
import io
import json
import struct
from pathlib import Path

import h5py
import numpy as np

# What a task refuses: files whose names begin so, and those that every task does.
OF_TASKS = {name: f"{name}_" for name in ("npz", "folder", "idx", "emnist", "shakespeare")}
OF_TASKS["shakespeare-leaf"] = "leaf_"
OF_ALL = ("missing", "empty", "text")

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])
CLIENT = np.array([1, 0, 1, 0, 1, 1])
NPZ = {  # what is other than in a good file; None is left out
    "npz": {},
    "npz_without_y": {"y": None},
    "npz_scalar_x": {"x": np.float64(1)},
    "npz_scalar_client": {"client": np.int64(1)},
    "npz_no_examples": {"x": X[:0], "y": Y[:0], "client": CLIENT[:0]},
    "npz_no_features": {"x": X[:, :0]},
    "npz_text_x": {"x": X.astype(str)},
    "npz_nan_x": {"x": np.where(X > 3, np.nan, X)},
    "npz_large_x": {"x": X * 1e300},
    "npz_float_y": {"y": Y / 2},
    "npz_matrix_y": {"y": Y[:, None]},
    "npz_negative_y": {"y": Y - 1},
    "npz_y_5e6": {"y": Y * 2_500_000},
    "npz_short_y": {"y": Y[:5]},
    "npz_short_client": {"client": CLIENT[:5]},
    "npz_float_client": {"client": CLIENT / 2},
    "npz_x_test_alone": {"x_test": X},
    "npz_test_labels": {"x_test": X, "y_test": Y + 1},
    "npz_test_empty": {"x_test": X[:0], "y_test": Y[:0]},
    "npz_pickle": {"x": np.array([{}] * 6, object)},
}


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(changes):
    arrays = {"x": X, "y": Y, "client": CLIENT} | changes
    file = io.BytesIO()
    np.savez(file, **{key: value for key, value in arrays.items() if value is not None})
    return file.getvalue()


def folders():
    """Folders of arrays for every client."""
    good = {"x.npy": npy(X), "y.npy": npy(Y)}
    test = {"x_test.npy": npy(X), "y_test.npy": npy(Y + 1)}
    return {
        "folder_without_y": {"anna": {"x.npy": npy(X)}},
        "folder_shapes": {"anna": good, "bert": good | {"x.npy": npy(X[:, :1])}},
        "folder_test_labels": {"anna": good | test},
        "folder_no_examples": {"anna": {"x.npy": npy(X[:0]), "y.npy": npy(Y[:0])}},
    }


def idx(shape, content=None, dtype=8):
    head = bytes([0, 0, dtype, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return head + (bytes(int(np.prod(shape))) if content is None else content)


def idx_sets():
    """Folders of the four files, each with others than a good one."""
    images, labels, other = "train-images.idx", "train-labels.idx", "t10k-images.idx"
    good = {images: idx((3, 2, 2)), labels: idx((3,)), other: idx((3, 2, 2)),
            "t10k-labels.idx": idx((3,))}  # fmt: skip
    random = np.random.default_rng(0).bytes(1_200_000)
    changed = {
        "idx": {},
        "idx_cut": {images: idx((3, 2, 2))[:-1]},
        "idx_text": {images: b"hello there"},
        "idx_giant_rank": {images: bytes([0, 0, 8, 255]) + bytes(4 * 255)},
        "idx_labels": {labels: idx((3,), np.array([0, 0, 5_000_000], ">i4").tobytes(), 12)},
        "idx_lengths": {labels: idx((2,))},
        "idx_no_images": {images: idx((0, 2, 2)), labels: idx((0,))},
        "idx_twice": {f"other-{images}": idx((3, 2, 2))},
        "idx_floats": {images: idx((3, 2), bytes(24), 13)},
        "idx_sizes": {other: idx((3, 2, 3))},
    }
    packed = {
        "idx_bomb": gzip.compress(idx((11, 10_000, 10_000), random), 1),
        "idx_half_gzip": gzip.compress(idx((3, 2, 2)))[:-12],
        "idx_longer_gzip": gzip.compress(idx((3, 2, 2)) + b"x"),
    }
    others = {name: content for name, content in good.items() if name != images}
    return {name: good | files for name, files in changed.items()} | {
        name: others | {f"{images}.gz": content} for name, content in packed.items()
    }


def leaf():
    """Folders of one JSON file."""

    def of(x, y, count=1):
        return {"users": ["a"], "num_samples": [count], "user_data": {"a": {"x": x, "y": y}}}

    contents = {
        "leaf_null": None,
        "leaf_null_users": {"users": None, "num_samples": [], "user_data": {}},
        "leaf_null_data": {"users": ["a"], "num_samples": [1], "user_data": None},
        "leaf_short_text": of(["short"], ["b"]),
        "leaf_counts": of(["a" * 80], ["b"], 2),
        "leaf_few_counts": {"users": ["a"], "num_samples": [], "user_data": {}},
        "emnist_ragged": of([[0] * 784] * 2, [[1], [1, 2]], 2),
    }
    texts = {name: json.dumps(content) for name, content in contents.items()}
    texts |= {"leaf_text": "{", "leaf_deep": "[" * 200_000}
    return {name: {"all.json": text} for name, text in texts.items()}


def tff():
    """Folders of TFF's two files."""

    def files(data, client, **arrays):
        made = io.BytesIO()
        with h5py.File(made, "w") as file:
            for key, value in arrays.items():
                file[f"{client}/{key}"] = value
        return {f"{data}_{part}.h5": made.getvalue() for part in ("train", "test")}

    images, labels = np.zeros((2, 28, 28), np.float32), np.zeros(2, np.int32)
    client = "examples/f0"
    return {
        "emnist_text": {f"fed_emnist_{part}.h5": b"hello" for part in ("train", "test")},
        "emnist_no_group": files("fed_emnist", "others/f0", pixels=images, label=labels),
        "emnist_no_label": files("fed_emnist", client, pixels=images),
        "emnist_shapes": files("fed_emnist", client, pixels=images[:, 1:], label=labels),
        "emnist_lengths": files("fed_emnist", client, pixels=images[:1], label=labels),
        "emnist_labels": files("fed_emnist", client, pixels=images, label=labels + 62),
        "emnist_nan": files("fed_emnist", client, pixels=images + np.nan, label=labels),
        "shakespeare_numbers": files("shakespeare", client, snippets=np.arange(3)),
    }


HEAD = "arm,seed,spoke,bytes_up,asked,rejected,overhead_up,bytes_up_full,bytes_down,"
HEAD += "overhead_down,bytes_down_full,threshold,norm_mean,accuracy,loss\n"
REST = ",4,0,96,496,400,96,496,,1,0.5,1\n"
ROW = "full,0,4,400" + REST
RUNS = {  # the content of metrics.csv
    "run": HEAD + ROW + ROW,
    "run_without_rows": HEAD,
    "run_of_other_columns": "arm,round\nfull,0\n",
    "run_cut_in_the_middle": HEAD + ROW + "full,0,4,400\n" + ROW,
    "run_without_bytes": HEAD + "full,0,4," + REST + ROW,
    "run_with_words": HEAD + "full,0,many,400" + REST,
    "run_in_latin": (HEAD + ROW.replace("full", "föll")).encode("latin-1"),
}
FILES = {
    "empty": {},
    "text": "hello",
    "folder": {"a": "a"},
    "toml_unknown": "rouns = 3\n",
    "fails": {"own.py": "1/0\n"},
    "csv": "user,y,a\nann,0,1\nann,1,2\nbob,0,3\nbob,1,4\n",
}


def make(root):
    """All of them, below `root`, by name."""
    made = FILES | {name: npz(changes) for name, changes in NPZ.items()}
    good = npz({})
    made["npz_cut"] = good[:-30]
    at = good.index(b"PK\1\2") + 24  # where the archive says how long a file is
    made["npz_bomb"] = good[:at] + struct.pack("<I", 0xFFFFFFF0) + good[at + 4 :]
    giant = npy(X).replace(b"(6, 2), }" + b" " * 13, b"(1000000000000000,), }")
    made["npz_giant_header"] = good.replace(npy(X), giant)
    made |= folders() | idx_sets() | leaf() | tff()
    made |= {name: {"metrics.csv": table} for name, table in RUNS.items()}
    for name, content in made.items():
        put(root / name, content)
    found = {name: root / name for name in (*made, "missing", "new")}
    return found | {"not_utf8": Path(str(root / "caf") + "\udce9")}


def put(path, content):
    if isinstance(content, dict):
        path.mkdir()
        for name, part in content.items():
            put(path / name, part)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
