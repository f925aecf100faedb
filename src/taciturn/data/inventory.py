"""What data are there: the work behind `taciturn data list` and `taciturn data check`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from taciturn.data import emnist, files, shakespeare, sources
from taciturn.data.dataset import Dataset
from taciturn.data.download import digest
from taciturn.errors import DataError

_READERS: dict[str, Callable[[list[Path]], Dataset]] = {
    "emnist": lambda paths: emnist.read_tff(*paths),
    "shakespeare": lambda paths: shakespeare.read_tff(*paths),
    "fashion": lambda paths: files.read_idx(paths, classes=10),
}
_EMBEDDED = {"glyphs": "drawn handwriting", "synthetic": "logistic regression",
             "synthetic-niid": "SYNTHETIC(1,1)"}  # fmt: skip


def listing(data: Any = None) -> list[str]:
    """A line for every published data set: whether it is there, where, and how large it is."""
    rows = []
    for name, source in sources.SOURCES.items():
        state = f"missing; `taciturn data fetch {name}` brings it"
        if found := sources.find(name, data):
            size = sum(path.stat().st_size for path in found)
            state = f"{size / 1e6:.1f} MB in {found[0].parent}"
        rows.append((name, source.about, state))
    for name, table in sources.HUGGING_FACE.items():
        rows.append((name, f"{table} (Hugging Face Hub)", "`source=huggingface`"))
    for name, about in _EMBEDDED.items():
        rows.append((name, about, "embedded, needs nothing"))
    return [f"{name:<18}{about:<44}{state}" for name, about, state in rows]


def check(name: str, data: Any = None) -> list[str]:
    """The files, checksums and counts of a data set, in lines, compared with the published ones.

    Checksums are those of a file `SHA256SUMS` beside the files or a folder above, or else the
    published ones. Fewer examples than were published are a part of the set; more are an error.
    """
    source = sources.source(name)
    paths = sources.find(name, data)
    if paths is None:
        raise DataError(sources.missing(name, data))
    published = {Path(url).name: checksum for url, checksum in source.downloads.items()}
    lines = []
    for path in paths:
        size = f"{path.stat().st_size / 1e6:.1f} MB"
        lines.append(f"{path}  {size}  {_checksum(path, published.get(path.name))}")
    counts = _READERS[name](paths).summary()
    for key, expected in source.counts.items():
        seen = counts[key]
        if seen > expected:
            raise DataError(f"{name} has {seen:,} {key}, more than the {expected:,} published.")
        verdict = "as published" if seen == expected else f"a part of the {expected:,} published"
        lines.append(f"{key:<18}{seen:>9,}  {verdict}")
    if counts["left out"]:
        lines.append(f"{'left out':<18}{counts['left out']:>9,}  clients without training examples")
    return lines


def _checksum(path: Path, published: str | None) -> str:
    """Whether the file's checksum is right, in words; an error if it is not."""
    for sums in (folder / "SHA256SUMS" for folder in path.parents[:2]):
        lines = sums.read_text("utf-8").splitlines() if sums.is_file() else []
        known = {sums.parent / line[66:]: f"sha256:{line[:64]}" for line in lines}
        if path in known:
            if digest(path, "sha256") != known[path]:
                raise DataError(f"{path} is not the file whose checksum is in {sums}.")
            return f"sha256 as in {sums}"
    if published is None:
        return "no checksum known"
    if digest(path, published) != published:
        return "packed otherwise than by the publisher"  # its counts tell more
    return f"{published.partition(':')[0]} as published"
