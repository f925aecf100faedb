"""The 405 writers of EMNIST that results here rest on, taken out of TFF's files.

`python -m experiments.emnist_subset` writes two files in TFF's layout, and refuses other images.
"""

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from taciturn.data import layouts, sources
from taciturn.data.dataset import Examples
from taciturn.data.emnist import FEATURES, as_examples
from taciturn.errors import DataError, TaciturnError, WriteError
from taciturn.files import atomic_write

# The four digits in the names of these writers, such as `f0424_27`.
WRITERS = frozenset(Path(__file__).with_name("emnist_405.txt").read_text("utf-8").split())

# What `checksum` makes of the images and labels in each file.
CHECKSUMS = {
    "fed_emnist_train.h5": "e77f372f9834de4c5f42b94ae4cddc3f642b6672399f58f342abc94937b14aea",
    "fed_emnist_test.h5": "12b847f70d01f96d3d15d966cd0bba9b3538b8abee418e4c4158c9ead4691dc0",
}


def write(folder: Path, data: Path | None = None) -> list[Path]:
    """The two files of the subset, written into `folder`.

    The whole set is looked for in `data` and wherever else data are looked for, or downloaded.
    """
    splits = {}
    for source in sources.find_or_fetch("emnist", data):
        everyone = layouts.read_tff(source, FEATURES, as_examples)
        writers = {name: own for name, own in everyone if name[1:5] in WRITERS}
        if (seen := checksum(writers)) != CHECKSUMS[source.name]:
            raise DataError(
                f"{source} has {len(writers)} of the {len(WRITERS)} writers of the subset; the "
                f"SHA-256 of their images is {seen} and not {CHECKSUMS[source.name]}."
            )
        splits[folder / source.name] = writers
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder} cannot be made: {error.strerror}.") from None
    for path, writers in splits.items():
        with atomic_write(path, "w+b") as raw, h5py.File(raw, "w") as file:
            for name, own in writers.items():
                group = file.create_group(f"examples/{name}")
                pixels = own["x"] / np.float32(255)
                group.create_dataset("pixels", data=pixels, compression="gzip")
                group["label"] = own["y"]
    return list(splits)


def checksum(writers: Mapping[str, Examples]) -> str:
    """The SHA-256 of the writers' images and labels, in whatever order each one's are."""
    seen = hashlib.sha256()
    for name, own in sorted(writers.items()):
        pairs = zip(own["x"], own["y"], strict=True)
        rows = [image.tobytes() + bytes([label]) for image, label in pairs]
        seen.update(name.encode() + b"".join(sorted(rows)))
    return seen.hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Does what the command line says; an error is one line, and the exit status 1."""
    parser = argparse.ArgumentParser("python -m experiments.emnist_subset", description=__doc__)
    parser.add_argument("--data", type=Path, help="where the whole set lies, or else is looked for")
    parser.add_argument("--out", type=Path, default=Path("emnist-405"), help="(%(default)s)")
    asked = parser.parse_args(arguments)
    try:
        sys.stdout.writelines(f"{path}\n" for path in write(asked.out, asked.data))
    except TaciturnError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
