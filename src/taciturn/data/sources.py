"""Where data lie: `--data`, `TACITURN_DATA`, the user's cache folder, and who publishes them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taciturn.checks import path_of
from taciturn.data.download import Download, digest, fetch
from taciturn.errors import DataError, UnknownName, require
from taciturn.files import atomic_write


@dataclass(frozen=True)
class Source:
    """A published data set.

    Attributes:
      about: one line.
      files: what must be there. A name may stand with or without a final `.gz`.
      downloads: where the publishers host it.
      counts: the published totals.
      elsewhere: folders in which operating systems install it.
    """

    about: str
    files: tuple[str, ...]
    downloads: tuple[Download, ...]
    counts: dict[str, int]
    elsewhere: tuple[str, ...] = ()


_TFF = "https://storage.googleapis.com/tff-datasets-public/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_FASHION_SUMS = {
    "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}
_EMNIST_SUM = "sha256:fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0"
_SHAKESPEARE_SUM = "sha256:0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707"

# Checksums are the publishers': TFF's from its own loaders, Fashion-MNIST's from its README.
SOURCES = {
    "emnist": Source(
        "handwriting by writer, 62 classes (TFF)",
        ("fed_emnist_train.h5", "fed_emnist_test.h5"),
        (Download(_TFF + "fed_emnist.tar.bz2", _EMNIST_SUM),),
        {"clients": 3_400, "train": 671_585, "test": 77_483},
    ),
    "shakespeare": Source(
        "lines by speaking role (TFF)",
        ("shakespeare_train.h5", "shakespeare_test.h5"),
        (Download(_TFF + "shakespeare.tar.bz2", _SHAKESPEARE_SUM),),
        {"clients": 715, "train": 37_784, "test": 5_490,
         "train snippets": 16_068, "test snippets": 2_356},
    ),
    "fashion": Source(
        "Fashion-MNIST, 10 classes of clothing",
        tuple(_FASHION_SUMS),
        tuple(Download(_FASHION + file, md5) for file, md5 in _FASHION_SUMS.items()),
        {"train": 60_000, "test": 10_000},
        ("/usr/share/datasets/fashion-mnist",),
    ),
}  # fmt: skip
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
    source(name)
    return next(filter(None, (_files_in(folder, name) for folder in folders(name, data))), None)


def find_or_fetch(name: str, data: Any = None) -> list[Path]:
    """The files of a published data set, downloaded into the cache folder if need be."""
    if found := find(name, data):
        return found
    if given(data) is not None:
        raise DataError(missing(name, data))
    known, folder = source(name), cache_folder() / "data" / name
    try:
        for download in known.downloads:
            fetch(download, folder, contents=known.files)
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
    addresses = " and ".join(download.url for download in known.downloads)
    only = ""
    if data is None and given() is not None:
        only = "While TACITURN_DATA is set, data are looked for nowhere else. "
    return (
        f"{' and '.join(known.files)} were not found in {looked}. {only}To bring them by hand: get "
        f"{addresses} on a machine that is online, unpack it if it is an archive, and point "
        f"`--data` or TACITURN_DATA to the folder."
    )


def _files_in(folder: Path, name: str) -> list[Path] | None:
    """The files of a data set, packed or not, or None if they are not all in this folder."""
    paths = []
    for file in source(name).files:
        either = (folder / file, folder / file.removesuffix(".gz"))
        if not (found := [path for path in either if path.is_file()]):
            return None
        paths.append(found[0])
    return paths
