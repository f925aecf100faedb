"""Files that are whole or not there, whatever kills the process that writes them.

Locks are the operating system's: they end with the process that holds them, however that ends, on
one machine and on network file systems that know locks. So a temporary file that can be locked is
nobody's any more, and a process that waits for a dead one waits for nothing.
"""

import errno
import logging
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

log = logging.getLogger("taciturn")

_PAUSE = 0.2  # seconds between two looks at a lock that another process holds
_SUFFIX = ".taciturn"  # of temporary files: what is swept away must be ours

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write that takes the place of `path` when the block ends without an error.

    What killed writers left in the folder is removed on the way.
    """
    sweep(path.parent)
    beside, file = _beside(path, mode)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # where open files cannot be renamed
                file.close()
            os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Removes the temporary files in a folder whose writers are dead."""
    for path in folder.glob(f".*{_SUFFIX}"):
        with suppress(OSError):
            if os.name == "nt":  # where open files cannot be removed either
                path.unlink()
                continue
            with open(path, "r+b") as file:
                if _locked(file.fileno()):
                    path.unlink()


@contextmanager
def alone(path: Path, doing: str) -> Iterator[bool]:
    """A block in which one process is at a time; the others wait, and say so once.

    Args:
      path: the file that is locked. It is made, and removed at the end.
      doing: what a process that waits says another one does.

    Yields:
      Whether there was another one to wait for. Where a file system knows no locks, nobody waits.
    """
    waited = False
    while (file := hold(path)) is None:
        if not waited:
            log.warning("Another process %s: waiting for it.", doing)
        waited = True
        time.sleep(_PAUSE)
    with held(path, file):
        yield waited


@contextmanager
def held(path: Path, file: IO[Any]) -> Iterator[None]:
    """A block at whose end a lock that `hold` gave is let go."""
    with file:
        try:
            yield
        finally:
            # While it is held, so that nobody locks a file that is gone. Windows leaves it there.
            with suppress(OSError):
                path.unlink()


def hold(path: Path) -> IO[Any] | None:
    """The file, locked by this process; None while another one has it."""
    file = open(path, "ab")  # noqa: SIM115
    with suppress(FileNotFoundError):
        # Whoever had it may have removed it since it was opened: others would not find this one.
        if _locked(file.fileno()) is not False and os.path.samestat(
            os.stat(path), os.fstat(file.fileno())
        ):
            return file
    file.close()
    return None


def _beside(path: Path, mode: str) -> tuple[Path, IO[Any]]:
    """A new file beside `path`, locked, with the permissions that `open` would give it."""
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    while True:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
        file = open(beside, mode.replace("w", "x"), **text)  # noqa: SIM115
        # Somebody may have swept it away before it was locked, or be about to.
        if os.name == "nt" or (_locked(file.fileno()) is not False and beside.exists()):
            return beside, file
        file.close()


def _locked(descriptor: int) -> bool | None:
    """Locks an open file: whether nobody else has, or None where there are no locks."""
    try:
        _lock(descriptor)
    except OSError as error:
        return False if error.errno in (errno.EAGAIN, errno.EACCES) else None
    return True
