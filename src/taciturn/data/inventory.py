"""What data are there: the work behind `taciturn data list` and `taciturn data check`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from taciturn.data import places
from taciturn.data.dataset import Dataset
from taciturn.data.download import digest
from taciturn.data.emnist import read_tff as read_emnist
from taciturn.data.idx import read as read_idx_files
from taciturn.data.shakespeare import read_tff as read_shakespeare
from taciturn.errors import DataError

_READERS: dict[str, Callable[[list[Path]], Dataset]] = {
    "emnist": lambda files: read_emnist(*files),
    "shakespeare": lambda files: read_shakespeare(*files),
    "fashion": lambda files: read_idx_files(files, classes=10),
}


def listing(data: Any = None) -> list[str]:
    """A line for every published data set: whether it is there, where, and how large it is."""
    lines = []
    for name, source in places.SOURCES.items():
        found = places.find(name, data)
        if found is None:
            state = f"missing; `taciturn data fetch {name}` brings it"
        else:
            size = sum(path.stat().st_size for path in found)
            state = f"{size / 1e6:.1f} MB in {found[0].parent}"
        lines.append(f"{name:<18}{source.about:<44}{state}")
    for name, table in places.HUGGING_FACE.items():
        lines.append(f"{name:<18}{table + ' (Hugging Face Hub)':<44}`source=huggingface`")
    embedded = {"glyphs": "drawn handwriting", "synthetic": "logistic regression",
                "synthetic-niid": "SYNTHETIC(1,1)"}  # fmt: skip
    for name, about in embedded.items():
        lines.append(f"{name:<18}{about:<44}embedded, needs nothing")
    return lines


def check(name: str, data: Any = None) -> list[str]:
    """Reads a data set anew and compares it with what its publishers say of it.

    Files are checked against published checksums, or against a file `SHA256SUMS` beside them or a
    folder above; then counts against the published ones. Fewer are reported as a part of the set.

    Returns:
      What was found, in lines.
    """
    source = places.source(name)
    files = places.find(name, data)
    if files is None:
        raise DataError(places.missing(name, data))
    published = {download.file: download.checksum for download in source.downloads}
    lines = []
    for path in files:
        size = f"{path.stat().st_size / 1e6:.1f} MB"
        lines.append(f"{path}  {size}  {_checksum(path, published.get(path.name))}")
    counts = _READERS[name](files).summary()
    for key, expected in source.counts.items():
        seen = counts[key]
        verdict = "as published" if seen == expected else f"a part of the {expected:,} published"
        if seen > expected:
            raise DataError(f"{name} has {seen:,} {key}, more than the {expected:,} published.")
        lines.append(f"{key:<18}{seen:>9,}  {verdict}")
    if counts["left out"]:
        lines.append(f"{'left out':<18}{counts['left out']:>9,}  clients without training examples")
    return lines


def _checksum(path: Path, published: str | None) -> str:
    """Whether the file's checksum is right, in words; an error if it is not."""
    beside = _sums(path)
    if beside is not None:
        where, expected = beside
        if digest(path, "sha256") != f"sha256:{expected}":
            raise DataError(f"{path} is not the file whose checksum is in {where}.")
        return f"sha256 as in {where}"
    if published is None:
        return "no checksum known"
    if digest(path, published.partition(":")[0]) != published:
        return "packed otherwise than by the publisher"  # its counts tell more
    return f"{published.partition(':')[0]} as published"


def _sums(path: Path) -> tuple[Path, str] | None:
    """The file with checksums that speaks of this one, and what it says."""
    for folder in (path.parent, path.parent.parent):
        sums = folder / "SHA256SUMS"
        if sums.is_file():
            for line in sums.read_text("utf-8").splitlines():
                expected, _, file = line.partition("  ")
                if folder / file.removeprefix("*").removeprefix("./") == path:
                    return sums, expected
    return None
