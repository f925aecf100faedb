"""The downloader against a server that breaks off, lies and sends wrong bytes."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from taciturn.data import download as downloading
from taciturn.data.download import Download, fetch, unpack
from taciturn.errors import DataError

CONTENT = bytes(range(256)) * 400  # 102,400 bytes
SHA = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server:
    """A loopback server whose answers are told by `behave(request number, handler)`."""

    def __init__(self):
        self.ranges = []
        self.behave = honest
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.ranges.append(self.headers.get("Range"))
                outer.behave(len(outer.ranges), self)
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file.bin"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def start_of(handler):
    asked = handler.headers.get("Range")
    return int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0


def answer(handler, body, *, length=None, ranges=True):
    """Sends `body`, from the byte that was asked for on, under this Content-Length."""
    start = start_of(handler) if ranges else 0
    if start >= len(CONTENT) and ranges:
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(CONTENT)}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
    if length != "none":
        handler.send_header("Content-Length", str(length or len(CONTENT) - start))
    handler.end_headers()
    handler.wfile.write(body[start:])


def honest(number, handler):
    answer(handler, CONTENT)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(downloading, "_PAUSE", 0)


@pytest.fixture
def server():
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_file_is_fetched_checked_and_named(server, folder, monkeypatch):
    seen = []
    monkeypatch.setattr(downloading, "show_progress", lambda *report: seen.append(report))
    path = fetch(Download(server.url, SHA), folder)
    assert path == folder / "file.bin"
    assert path.read_bytes() == CONTENT
    assert files(folder) == ["file.bin"]
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))


def test_a_download_that_breaks_off_is_resumed(server, folder):
    def breaks_off(number, handler):
        answer(handler, CONTENT[: 40_000 * number])  # though it promises all of it

    server.behave = breaks_off
    fetch(Download(server.url, SHA), folder)
    assert (folder / "file.bin").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=40000-", "bytes=80000-"]


def test_a_later_call_takes_up_where_an_earlier_one_ended(server, folder):
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(CONTENT[:70_000])
    fetch(Download(server.url, SHA), folder)
    assert server.ranges == ["bytes=70000-"]
    assert (folder / "file.bin").read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_not_fetched_again(server, folder):
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(CONTENT)
    fetch(Download(server.url, SHA), folder)
    assert server.ranges == [f"bytes={len(CONTENT)}-"]
    assert (folder / "file.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_it_all_again(server, folder):
    def forgetful(number, handler):
        answer(handler, CONTENT[:50_000] if number == 1 else CONTENT, ranges=False)

    server.behave = forgetful
    fetch(Download(server.url, SHA), folder)
    assert server.ranges == [None, "bytes=50000-"]
    assert (folder / "file.bin").read_bytes() == CONTENT


def test_a_server_that_answers_another_range_is_not_believed(server, folder):
    def other(number, handler):
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}")
        handler.send_header("Content-Length", str(len(CONTENT) - 5))
        handler.end_headers()
        handler.wfile.write(CONTENT[5:])

    server.behave = other
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(CONTENT[:10])
    with pytest.raises(DataError, match="asked for byte 10, got 5, 5 times in a row"):
        fetch(Download(server.url, SHA), folder)


def test_a_length_that_is_too_long_gives_up_and_keeps_the_part(server, folder):
    server.behave = lambda number, handler: answer(
        handler, CONTENT, length=len(CONTENT) + 10, ranges=False
    )
    with pytest.raises(DataError, match="the connection broke off, 5 times in a row"):
        fetch(Download(server.url, SHA), folder)
    assert files(folder) == ["file.bin.part"]


def test_a_chunked_answer_that_breaks_off_is_resumed(server, folder):
    def chunked(number, handler):
        if number > 1:
            answer(handler, CONTENT)
            return
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for start in range(0, 30_000, 10_000):
            handler.wfile.write(b"2710\r\n" + CONTENT[start : start + 10_000] + b"\r\n")
        handler.wfile.write(b"2710\r\n" + CONTENT[30_000:35_000])

    server.behave = chunked
    assert fetch(Download(server.url, SHA), folder).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=30000-"]


def test_wrong_bytes_are_thrown_away(server, folder):
    server.behave = lambda number, handler: answer(handler, b"x" + CONTENT[1:])
    with pytest.raises(DataError, match=f"is sha256:.* and not {SHA}") as error:
        fetch(Download(server.url, SHA), folder)
    assert server.url in str(error.value)
    assert files(folder) == []


FETCHES = """
import sys
from pathlib import Path
from taciturn.data.download import Download, fetch
url, checksum, folder, *contents = sys.argv[1:]
fetch(Download(url, checksum or None), Path(folder), contents=contents)
"""


def start_fetching(*arguments):
    command = [sys.executable, "-c", FETCHES, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def slowly(server, content=CONTENT):
    """Sends half of it, and the rest when told to. Returns what says that, and what tells."""
    asked, go_on = threading.Event(), threading.Event()

    def send(number, handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        asked.set()
        go_on.wait(60)
        handler.wfile.write(content[len(content) // 2 :])

    server.behave = send
    return asked, go_on


@pytest.mark.parametrize("checksum", [SHA, ""])
def test_of_two_processes_one_downloads_and_the_other_waits(server, folder, checksum):
    asked, go_on = slowly(server)
    with start_fetching(server.url, checksum, folder) as first:
        assert asked.wait(60)
        with start_fetching(server.url, checksum, folder) as second:
            said = second.stderr.readline()
            go_on.set()
            assert second.communicate()[1] == ""
        assert first.communicate()[1] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert said == f"Another process downloads {folder / 'file.bin'}: waiting for it.\n"
    assert (folder / "file.bin").read_bytes() == CONTENT
    assert files(folder) == ["file.bin"]
    assert len(server.ranges) == 1


def test_of_two_processes_one_unpacks(server, folder, tmp_path):
    packed = archive(tmp_path / "a", [("one.h5", b"1"), ("two.h5", b"2")]).read_bytes()
    asked, go_on = slowly(server, packed)
    what = (server.url.replace("file.bin", "set.tar.bz2"), "", folder, "one.h5", "two.h5")
    with start_fetching(*what) as first:
        assert asked.wait(60)
        with start_fetching(*what) as second:
            assert second.stderr.readline()
            go_on.set()
    assert (first.returncode, second.returncode) == (0, 0)
    assert files(folder) == ["one.h5", "two.h5"]
    assert len(server.ranges) == 1


def test_a_killed_download_holds_nobody_up_and_is_resumed(server, folder):
    asked, go_on = slowly(server, CONTENT * 20)  # more than is kept in memory before it is written
    with start_fetching(server.url, SHA, folder) as first:
        assert asked.wait(60)
        part = folder / "file.bin.part"
        while not part.exists() or not part.stat().st_size:
            assert first.poll() is None
        first.kill()
    go_on.set()
    part.write_bytes(CONTENT[:70_000])
    server.behave = honest
    assert fetch(Download(server.url, SHA), folder).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=70000-"]
    assert files(folder) == ["file.bin"]


def test_what_a_killed_process_had_unpacked_is_removed(tmp_path):
    folder = tmp_path / "data"
    (folder / ".a.tar.bz2.unpacked").mkdir(parents=True)
    (folder / ".a.tar.bz2.unpacked" / "half.h5").touch()
    unpack(archive(tmp_path / "a.tar.bz2", [("one.h5", b"1")]), folder)
    assert files(folder) == ["one.h5"]


def test_a_missing_file_is_not_asked_for_again(server, folder):
    server.behave = lambda number, handler: handler.send_error(404)
    with pytest.raises(DataError, match="the server answered 404 Not Found"):
        fetch(Download(server.url, SHA), folder)
    assert len(server.ranges) == 1


def test_a_busy_server_is_asked_again(server, folder):
    def busy(number, handler):
        handler.send_error(503) if number < 4 else answer(handler, CONTENT)

    server.behave = busy
    assert fetch(Download(server.url, SHA), folder).read_bytes() == CONTENT


def test_nobody_there_is_one_line(folder):
    server = Server()
    server.stop()
    with pytest.raises(DataError, match=r"127\.0\.0\.1:\d+/file\.bin cannot be reached"):
        fetch(Download(server.url, SHA), folder)


def archive(path, members):
    """A tar file of (name, content or a TarInfo type)."""
    with tarfile.open(path, "w:bz2") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                tar.addfile(info)
    return path


def test_an_archive_is_unpacked_and_gone(server, folder, tmp_path):
    packed = archive(tmp_path / "a", [("one.h5", b"1"), ("in/two.h5", b"2")]).read_bytes()

    def send(number, handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(packed)))
        handler.end_headers()
        handler.wfile.write(packed)

    server.behave = send
    url = server.url.replace("file.bin", "set.tar.bz2")
    checksum = "sha256:" + hashlib.sha256(packed).hexdigest()
    assert fetch(Download(url, checksum), folder) == folder
    assert files(folder) == ["in", "one.h5"]
    assert (folder / "in/two.h5").read_bytes() == b"2"


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (("../out.h5", b"x"), "`../out.h5` leads out"),
        (("in/../../out.h5", b"x"), "leads out"),
        (("/out.h5", b"x"), "`/out.h5` leads out"),
        (("link", (tarfile.SYMTYPE, "../out.h5")), "`link` is a link or a device"),
        (("hard", (tarfile.LNKTYPE, "one.h5")), "`hard` is a link or a device"),
        (("pipe", (tarfile.FIFOTYPE, "")), "`pipe` is a link or a device"),
    ],
)
def test_an_archive_that_leads_out_is_refused_whole(tmp_path, member, message):
    inner = tmp_path / "inner"
    inner.mkdir()
    packed = archive(tmp_path / "a.tar.bz2", [("one.h5", b"1"), member])
    with pytest.raises(DataError, match=message):
        unpack(packed, inner)
    assert files(inner) == []
    assert files(tmp_path) == ["a.tar.bz2", "inner"]


def test_a_broken_archive_is_named(tmp_path):
    packed = archive(tmp_path / "a.tar.bz2", [("one.h5", bytes(100_000))])
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.tar\.bz2 cannot be unpacked"):
        unpack(packed, tmp_path)


def test_a_server_that_falls_silent_is_given_up(server, folder, monkeypatch):
    monkeypatch.setattr(downloading, "_PATIENCE", 0.05)
    monkeypatch.setattr(downloading, "_ATTEMPTS", 2)
    wait = threading.Event()

    def silent(number, handler):
        wait.wait(5)

    server.behave = silent
    with pytest.raises(DataError, match="timed out, 2 times in a row"):
        fetch(Download(server.url, SHA), folder)
    wait.set()
