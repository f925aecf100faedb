"""The downloader against a server that breaks off, lies and sends wrong bytes."""

import hashlib
import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from taciturn.data import download as downloading
from taciturn.data.download import fetch, unpack
from taciturn.errors import DataError

CONTENT = bytes(range(256)) * 400  # 102,400 bytes
SHA = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


def answer(handler, body=CONTENT, *, length=None, ranges=True, begins=None):
    """Sends `body` from the byte that was asked for on; the headers promise all of CONTENT."""
    asked = handler.headers.get("Range") if ranges else None
    start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
    size = len(CONTENT)
    if asked:
        handler.send_response(206 if start < size else 416)
        where = f"{start if begins is None else begins}-{size - 1}" if start < size else "*"
        handler.send_header("Content-Range", f"bytes {where}/{size}")
    else:
        handler.send_response(200)
    handler.send_header("Content-Length", str(length or size - start))
    handler.end_headers()
    handler.wfile.write(body[start:])


@pytest.fixture
def server(monkeypatch):
    """A loopback server that answers by `behave(request number, handler)`; `ranges` are asked."""
    monkeypatch.setattr(downloading, "_PAUSE", 0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            http.ranges.append(self.headers.get("Range"))
            http.behave(len(http.ranges), self)
            self.close_connection = True

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.url = f"http://127.0.0.1:{http.server_port}/file.bin"
    http.ranges, http.behave = [], lambda number, handler: answer(handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield http
    http.shutdown()
    http.server_close()
    thread.join()


def files(folder):
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if path.suffix != ".lock")


def test_a_file_is_fetched_checked_and_named(server, folder, monkeypatch):
    seen = []
    monkeypatch.setattr(downloading, "show_progress", lambda *report: seen.append(report))
    assert fetch(server.url, SHA, folder).read_bytes() == CONTENT
    assert files(folder) == ["file.bin"]
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))


def chunked(number, handler):
    if number > 1:
        return answer(handler)
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    return handler.wfile.write(b"%x\r\n" % 40_000 + CONTENT[:35_000])


@pytest.mark.parametrize(
    ("behave", "asked"),
    [
        (lambda n, h: answer(h, CONTENT[: 40_000 * n]), [None, "bytes=40000-", "bytes=80000-"]),
        (chunked, [None, "bytes=35000-"]),
        (lambda n, h: answer(h, CONTENT[: 50_000 * n**2], ranges=False), [None, "bytes=50000-"]),
        (lambda n, h: h.send_error(503) if n < 4 else answer(h), [None] * 4),
    ],
    ids=["breaks off", "breaks off in a chunk", "knows no ranges", "is busy"],
)
def test_a_server_is_asked_again_for_what_is_missing(server, folder, behave, asked):
    server.behave = behave
    assert fetch(server.url, SHA, folder).read_bytes() == CONTENT
    assert server.ranges == asked


def test_what_is_already_whole_is_not_fetched_again(server, folder):
    (folder / "file.bin.part").write_bytes(CONTENT)
    for _ in range(2):
        assert fetch(server.url, SHA, folder).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT)}-"]


@pytest.mark.parametrize(
    ("behave", "message", "asked", "left"),
    [
        (lambda h: answer(h, begins=5), "from byte 10 on, got `bytes 5-.*`, 5 times", 5, True),
        (lambda h: answer(h, length=2**20, ranges=False), "broke off, 5 times in a row", 6, True),
        (lambda h: answer(h, CONTENT[::-1]), "sent other bytes .* is sha256:.* not sha", 1, False),
        (lambda h: h.send_error(404), "the server answered 404 Not Found", 1, True),
    ],
    ids=["another range", "less than it said", "other bytes", "nothing"],
)
def test_what_a_server_sends_is_not_believed(server, folder, behave, message, asked, left):
    (folder / "file.bin.part").write_bytes(CONTENT[:10])
    server.behave = lambda number, handler: behave(handler)
    with pytest.raises(DataError, match=f"{server.url} .*{message}"):
        fetch(server.url, SHA, folder)
    assert len(server.ranges) == asked
    assert files(folder) == ["file.bin.part"] * left


def test_a_server_that_falls_silent_is_given_up(server, folder, monkeypatch):
    monkeypatch.setattr(downloading, "_PATIENCE", 0.05)
    monkeypatch.setattr(downloading, "_ATTEMPTS", 2)
    wait = threading.Event()
    server.behave = lambda number, handler: wait.wait(5)
    with pytest.raises(DataError, match="timed out, 2 times in a row"):
        fetch(server.url, SHA, folder)
    wait.set()


def archive(path, *names, size=1, last=tarfile.REGTYPE):
    """A tar file of so many zero bytes under each of these names; the last is of this type."""
    with tarfile.open(path, "w:bz2") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.type = size, last if name == names[-1] else tarfile.REGTYPE
            tar.addfile(info, io.BytesIO(bytes(size)))
    return path


@pytest.mark.parametrize("contents", [(), ("in/two.h5", "one.h5")], ids=["file", "archive"])
def test_of_two_that_want_a_file_one_downloads_it(server, folder, tmp_path, contents, caplog):
    packed = archive(tmp_path / "a", *contents).read_bytes()
    asked, go_on = threading.Event(), threading.Event()

    def send_when_told(number, handler):
        handler.send_response(200)
        handler.end_headers()
        asked.set()
        go_on.wait(60)
        handler.wfile.write(packed)

    server.behave = send_when_told
    name = "set.tar.bz2" if contents else "file.bin"
    checksum = f"sha256:{hashlib.sha256(packed).hexdigest()}"
    what = (server.url.replace("file.bin", name), checksum, folder, contents)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(fetch, *what)
        assert asked.wait(60)
        second = pool.submit(fetch, *what)
        while "Another process downloads" not in caplog.text:
            assert not second.done()
        go_on.set()
        assert first.result() == second.result()
    assert files(folder) == list(contents or [name])
    assert len(server.ranges) == 1


def test_an_archive_that_is_broken_or_leads_out_is_refused_whole(folder, tmp_path):
    packed = tmp_path / "a.tar.bz2"
    for name, kind, message in (
        ("in/../../out.h5", tarfile.REGTYPE, "outside the destination"),
        ("it", tarfile.SYMTYPE, "`it` is a link or a device"),
        ("it", tarfile.FIFOTYPE, "`it` is a link or a device"),
    ):
        with pytest.raises(DataError, match=message):
            unpack(archive(packed, "one.h5", name, size=100_000, last=kind), folder)
    archive(packed, "one.h5", size=100_000).write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.tar\.bz2 cannot be unpacked"):
        unpack(packed, folder)
    assert files(tmp_path) == ["a.tar.bz2"]
