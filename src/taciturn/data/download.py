"""Downloads: resumed where they broke off, checked, and renamed into place when they are whole."""

import hashlib
import http.client
import logging
import os
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from taciturn.errors import DataError
from taciturn.files import wait_for_lock

log = logging.getLogger("taciturn")

_BLOCK = 1 << 18
_ATTEMPTS = 5  # in a row that bring nothing new
_PATIENCE = 60  # seconds without a byte
_PAUSE = 1.0  # seconds for each attempt in a row that brought nothing


def fetch(url: str, checksum: str, folder: Path, contents: Sequence[str] = ()) -> Path:
    """The file, downloaded into `folder`; of an archive, the folder that it was unpacked into.

    A download that breaks off is resumed, in this call or in a later one. Nothing takes its final
    name before its length and its checksum, `sha256:…` or `md5:…`, are right; what has the right
    checksum, or all `contents` of an archive, is not downloaded again. Of several processes that
    want a file, one downloads it and the others wait.
    """
    file = Path(url).name
    target, lock, part = folder / file, folder / f".{file}.lock", folder / f"{file}.part"
    archive = ".tar" in file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(lock, f"downloads {target}"):
            if archive and contents and all((folder / one).is_file() for one in contents):
                return folder
            if target.is_file() and digest(target, checksum) == checksum:
                return target
            _get_all(url, part)
            if (seen := digest(part, checksum)) != checksum:
                part.unlink()  # to resume it would not help
                raise DataError(
                    f"{url} sent other bytes than were published: the checksum is {seen} and not "
                    f"{checksum}. The download was thrown away."
                )
            if not archive:
                os.replace(part, target)
                return target
            unpack(part, folder)
            part.unlink()
            return folder
    except OSError as error:
        raise DataError(f"{folder} cannot be written to: {error.strerror or error}.") from None


def _get_all(url: str, part: Path) -> None:
    """Downloads until the file is whole or `_ATTEMPTS` in a row have brought nothing new."""
    failures = 0
    part.touch()
    while True:
        before = part.stat().st_size
        try:
            if _get(url, part, before):
                return
            problem = "the connection broke off"
        except urllib.error.HTTPError as error:
            problem = f"the server answered {error.code} {error.reason}"
            if error.code == 416:  # nothing beyond what is there: whole, or not ours
                if before and error.headers.get("Content-Range") == f"bytes */{before}":
                    return
                os.truncate(part, 0)
            elif error.code not in (408, 429, 500, 502, 503, 504):
                if not before:
                    part.unlink()
                raise DataError(f"{url} cannot be downloaded: {problem}.") from None
        except urllib.error.URLError as error:
            if not isinstance(error.reason, (ConnectionResetError, TimeoutError)):
                raise DataError(f"{url} cannot be reached: {error.reason}.") from None
            problem = str(error.reason)
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
        after = part.stat().st_size
        failures = 0 if after > before else failures + 1
        if failures >= _ATTEMPTS:
            raise DataError(f"{url} cannot be downloaded: {problem}, {failures} times in a row.")
        log.info("%s: %s after %d bytes, trying again.", url, problem, after)
        time.sleep(failures * _PAUSE)


def _get(url: str, part: Path, start: int) -> bool:
    """Appends to `part` what the server sends from byte `start` on; whether it is whole now."""
    headers = {"User-Agent": "taciturn", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        sent = answer.headers.get("Content-Range", "")
        if answer.status == 206 and not sent.startswith(f"bytes {start}-"):
            raise http.client.HTTPException(f"asked from byte {start} on, got `{sent}`")
        have = start if answer.status == 206 else 0  # a server without ranges sends it all again
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        with open(part, "ab" if have else "wb") as file:
            while block := answer.read1(_BLOCK):
                file.write(block)
                have += len(block)
                show_progress(part.name.removesuffix(".part"), have, total)
    return total in (None, have)


def digest(path: Path, like: str) -> str:
    """`algorithm:hex` of a file; `like` is an algorithm, or a checksum that was made by it."""
    algorithm = like.partition(":")[0]
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{found.hexdigest()}"


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks the plain files of a tar archive into `folder`, each renamed there when it is whole.

    An archive with a name that leads out of the folder, a link or a device is refused as a whole.
    Two processes must not unpack one archive at a time.
    """

    def plain(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        if not (member.isfile() or member.isdir()):
            raise DataError(f"{archive} is refused: `{member.name}` is a link or a device.")
        return tarfile.data_filter(member, folder)

    beside = folder / f".{archive.name}.unpacked"
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(beside, filter=plain)
        for path in filter(Path.is_file, beside.rglob("*")):
            target = folder / path.relative_to(beside)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise DataError(f"{archive} cannot be unpacked: {error}.") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def show_progress(file: str, have: int, total: int | None) -> None:
    """A line on the terminal that counts megabytes; nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        return
    whole = f" of {total / 1e6:.1f}" if total else ""
    sys.stderr.write(f"\r{file}: {have / 1e6:.1f}{whole} MB ")
    if total == have:
        sys.stderr.write("\n")
    sys.stderr.flush()
