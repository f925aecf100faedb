"""Where data lie: `--data`, `TACITURN_DATA`, the user's cache folder, and who publishes them."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.checks import path_of
from taciturn.data.download import digest, fetch
from taciturn.errors import DataError, UnknownName, require
from taciturn.files import atomic_write


@dataclass(frozen=True)
class Source:
    """A published data set, as `sources.toml` has it; `downloads` are addresses with checksums."""

    about: str
    files: Sequence[str]
    downloads: Mapping[str, str]
    counts: Mapping[str, int]
    elsewhere: Sequence[str] = ()


_PUBLISHED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SOURCES = {name: Source(**known) for name, known in _PUBLISHED.items()}
HUGGING_FACE = {"emnist": "flwrlabs/femnist", "shakespeare-leaf": "flwrlabs/shakespeare"}


def source(name: str) -> Source:
    """The published data set of this name."""
    if name not in SOURCES:
        raise UnknownName("data set", name, SOURCES)
    return SOURCES[name]


def cache_folder() -> Path:
    """The folder for downloads and parsed data: `TACITURN_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("TACITURN_CACHE")
    return Path(chosen) if chosen else require("platformdirs", "sim").user_cache_path("taciturn")


def folders(name: str, data: Any = None) -> list[Path]:
    """The folders to look in for the data set of this name, in order.

    A folder that is named, by `data` or else TACITURN_DATA, stands alone: to go on elsewhere would
    train on other data than was asked. Otherwise they are the user's cache folder and those in
    which an operating system has the data.
    """
    chosen = given(data)
    if chosen is not None:
        if not chosen.is_dir():
            whose = "TACITURN_DATA" if data is None else "`data`"
            raise DataError(f"{whose} must be a folder, and {chosen} is none.")
        return [chosen / name, chosen] if data is None else [chosen, chosen / name]
    root = cache_folder() / "data"
    system = SOURCES[name].elsewhere if name in SOURCES else ()
    return [root / name, root, *map(Path, system)]


def given(data: Any = None) -> Path | None:
    """The folder that a user has named: `data`, or TACITURN_DATA."""
    chosen = data if data is not None else os.environ.get("TACITURN_DATA") or None
    return None if chosen is None else path_of("data", chosen)


def find(name: str, data: Any = None) -> list[Path] | None:
    """The files of a published data set, in the order of `Source.files`; None where one lacks."""
    return next(filter(None, (_files_in(folder, name) for folder in folders(name, data))), None)


def find_or_fetch(name: str, data: Any = None) -> list[Path]:
    """The files of a published data set, downloaded into the cache folder if need be."""
    if found := find(name, data):
        return found
    if given(data) is not None:
        raise DataError(missing(name, data))
    known, folder = source(name), cache_folder() / "data" / name
    try:
        for url, checksum in known.downloads.items():
            fetch(url, checksum, folder, contents=known.files)
    except DataError as error:
        raise DataError(f"{error} {missing(name)}") from None
    paths = _files_in(folder, name)
    if paths is None:
        wanted = " and ".join(known.files)
        raise DataError(f"What was downloaded to {folder} does not contain {wanted}.")
    # The publisher's checksum is that of the archive: from here on, these stand for it.
    sums = "".join(f"{digest(path, 'sha256').partition(':')[2]}  {path.name}\n" for path in paths)
    with atomic_write(folder / "SHA256SUMS") as beside:
        beside.write(sums)
    return paths


def missing(name: str, data: Any = None) -> str:
    """Which files are missing, where they were looked for, and how to bring them by hand."""
    known = source(name)
    looked = ", ".join(map(str, folders(name, data)))
    addresses = " and ".join(known.downloads)
    only = "While TACITURN_DATA is set, data are looked for nowhere else. "
    return (
        f"{' and '.join(known.files)} were not found in {looked}. "
        f"{only if data is None and given() else ''}To bring them by hand: get {addresses} on a "
        "machine that is online, unpack it if it is an archive, and point `--data` or "
        "TACITURN_DATA to the folder."
    )


def _files_in(folder: Path, name: str) -> list[Path] | None:
    """The files of a data set, packed or not, or None if they are not all in this folder."""
    pairs = [(folder / file, folder / file.removesuffix(".gz")) for file in source(name).files]
    found = [next(filter(Path.is_file, pair), folder) for pair in pairs]
    return None if folder in found else found
