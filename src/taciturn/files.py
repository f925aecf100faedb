"""Files that are whole or not there, whatever kills the process that writes them.

Locks are the operating system's: they end with the process that holds them, on one machine and on
network file systems that know locks. So a temporary file that can be locked has no writer any more,
and nobody waits for a dead process. Lock files stay where they are: one that is removed could be
locked by two processes, each of which sees its own.
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

from taciturn.errors import WriteError

log = logging.getLogger("taciturn")

_PAUSE = 0.2  # seconds between two looks at a lock that another process holds
_LOOK = 0.02  # seconds, at most, for which a process holds a lock to see whether it is free
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
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write that takes the place of `path` when the block ends without an error.

    What killed writers left in the folder is removed on the way.
    """
    beside = None
    try:
        sweep(path.parent)
        beside, file = _beside(path, mode)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # where open files cannot be renamed
                file.close()
            os.replace(beside, path)
    except BaseException as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise WriteError(f"{path} cannot be written: {error.strerror}.") from None
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
def wait_for_lock(path: Path, doing: str) -> Iterator[bool]:
    """A block in which one process is at a time; yields whether it had to wait for another one.

    A process that waits logs once what the other one is `doing`. The lock file is made if need be.
    Where a file system knows no locks, nobody waits.
    """
    waited = False
    while (lock := try_lock(path)) is None:
        if not waited:
            log.warning("Another process %s: waiting for it.", doing)
        waited = True
        time.sleep(_PAUSE)
    with lock:
        yield waited


def try_lock(path: Path) -> IO[Any] | None:
    """The lock file, locked until it is closed; None while another process has it.

    Another user's lock file can only be read: that is enough to lock it.
    """
    try:
        file: IO[Any] = open(path, "ab")  # noqa: SIM115
    except PermissionError:
        file = open(path, "rb")  # noqa: SIM115
    for pause in (_LOOK, _LOOK, 0):
        if _locked(file.fileno()) is not False:
            return file
        time.sleep(pause)
    file.close()
    return None


def is_locked(path: Path) -> bool:
    """Whether a process has the lock; False where there is no such file, or it cannot be read."""
    if not path.exists():
        return False
    try:
        lock = try_lock(path)
    except OSError:
        return False
    if lock is not None:
        lock.close()
    return lock is None


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
