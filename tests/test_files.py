"""Files that are whole or not there, locks, and what killed processes leave behind.

The system keeps locks by open file, so that one process can be several writers.
"""

import errno
import os
import stat
import threading

import pytest

from taciturn import files, runs
from taciturn.errors import WriteError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_an_error_in_the_middle_leaves_the_old_file_and_no_litter(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    kind = WriteError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(kind), files.atomic_write(path) as file:  # noqa: PT012
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_permissions_are_those_that_open_gives(tmp_path):
    before = os.umask(0o077)
    try:
        with files.atomic_write(tmp_path / "file") as file:
            file.write("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_what_killed_writers_leave_is_removed_and_nothing_else(tmp_path):
    others = {".large.tmp", "large.taciturn"}
    for name in (*others, ".killed.0.taciturn"):
        (tmp_path / name).touch()
    with files.atomic_write(tmp_path / "large") as file:
        runs.write_json(tmp_path / "other.json", {})
        assert len(names(tmp_path)) == 4  # that of the living one is left
        file.write("large")
    assert (tmp_path / "large").read_text() == "large"
    assert set(names(tmp_path)) == {*others, "large", "other.json"}


def test_a_file_that_was_swept_away_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    lock = files._locked

    def late(descriptor):
        monkeypatch.setattr(files, "_locked", lock)
        files.sweep(tmp_path)
        return lock(descriptor)

    monkeypatch.setattr(files, "_locked", late)
    runs.write_json(tmp_path / "a.json", {"a": 1})
    assert runs.read_json(tmp_path / "a.json") == {"a": 1}


def test_one_has_the_lock_and_the_other_waits_and_says_so_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(files, "_PAUSE", 0.01)
    path, waited = tmp_path / "lock", []

    def second():
        with files.wait_for_lock(path, "downloads a.bin") as had_to:
            waited.append(had_to)

    with files.try_lock(path):
        assert files.is_locked(path)
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        assert not waited
    thread.join(60)
    assert waited == [True]
    assert caplog.messages == ["Another process downloads a.bin: waiting for it."]
    assert not files.is_locked(path)


def test_whoever_looks_at_a_lock_keeps_nobody_from_it(tmp_path):
    path, ended = tmp_path / "lock", threading.Event()
    path.touch()

    def look():
        while not ended.is_set():
            files.is_locked(path)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(100):
            files.try_lock(path).close()
    finally:
        ended.set()
        thread.join()


def test_another_users_lock_can_be_looked_at(tmp_path, monkeypatch):
    """To open it for writing is forbidden; the tests may run as root, who may do anything."""

    def forbidden(path, mode):
        if mode != "rb":
            raise PermissionError(errno.EACCES, "Permission denied")
        return open(path, mode)

    (tmp_path / "lock").touch()
    monkeypatch.setattr(files, "open", forbidden, raising=False)
    assert not files.is_locked(tmp_path / "lock")
    with files.try_lock(tmp_path / "lock"):
        assert files.is_locked(tmp_path / "lock")


def test_where_there_are_no_locks_nobody_waits_and_nothing_is_swept(tmp_path, monkeypatch):
    def none(descriptor):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files, "_lock", none)
    (tmp_path / ".a.0.taciturn").touch()
    with files.wait_for_lock(tmp_path / "lock", "works") as waited:
        assert not waited
    runs.write_json(tmp_path / "b.json", {})
    assert names(tmp_path) == [".a.0.taciturn", "b.json", "lock"]
