"""Small files in the layouts in which data come."""

import json

import h5py
import numpy as np


def write_tff(path, clients):
    """TFF's layout: examples/<client>/<feature>."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for client, features in clients.items():
            for feature, value in features.items():
                file[f"examples/{client}/{feature}"] = value


def images(count, first=0):
    """So many 28 × 28 images of k / 255, and labels from `first` on."""
    levels = np.random.default_rng(first).integers(0, 256, (count, 28, 28), np.uint8)
    labels = (first + np.arange(count, dtype=np.int32)) % 62
    return {"pixels": levels / np.float32(255), "label": labels}


def write_emnist(folder, train=None, test=None):
    """The two files of federated EMNIST with three writers, or with those given."""
    write_tff(
        folder / "fed_emnist_train.h5",
        train or {"f0": images(3), "f1": images(5, 3), "f2": images(2, 60)},
    )
    write_tff(folder / "fed_emnist_test.h5", test or {"f0": images(1), "f2": images(2, 7)})
    return folder


def write_leaf(path, clients):
    """LEAF's layout, one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(clients),
        "num_samples": [len(x) for x, _ in clients.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in clients.items()},
    }
    path.write_text(json.dumps(content))
