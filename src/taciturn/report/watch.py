"""The page of run folders, live: a server on this machine that reads and never writes."""

import json
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from taciturn.errors import InputError, RunError
from taciturn.report import page, series

_REST = 10  # times as long as reading took, folders are left alone before they are read again
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Source:
    """What folders have, read again when they have changed."""

    def __init__(self, folders: Sequence[Path], accuracies: Sequence[float] = ()) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise RunError(f"{folder} is not a folder.")
        self._folders, self._accuracies = folders, accuracies
        self._lock = threading.Lock()
        self._content: dict[str, Any] = {}
        self._again = 0.0

    def content(self) -> dict[str, Any]:
        """The page's content, with a `version` that changes when it does."""
        with self._lock:
            began, version = time.monotonic(), self._version()
            if not self._content or (version != self._content["version"] and began >= self._again):
                self._content = self._read() | {"version": version}
                now = time.monotonic()
                self._again = now + _REST * (now - began)
            return self._content

    def _read(self) -> dict[str, Any]:
        folders = series.expand(self._folders)
        try:
            return page.content(folders, series.read_all(folders), self._accuracies)
        except RunError as error:
            ready = all((folder / "metrics.csv").exists() for folder in folders)
            return {"title": ", ".join(series.labels(folders)), "arms": [], "panels": [],
                    "subtitle": str(error) if ready else "no rounds yet", "savings": "",
                    "tables": "", "ended": False}  # fmt: skip

    def _version(self) -> str:
        """Sizes and times of the files that are read."""
        paths = [folder / name for folder in series.expand(self._folders)
                 for name in ("metrics.csv", "config.toml", "summary.json")]  # fmt: skip
        found = [path.stat() for path in paths if path.exists()]
        return "-".join(f"{about.st_size}.{about.st_mtime_ns}" for about in found)


def serve(source: Source, host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """A server of the page; `serve_forever` runs it, and its `server_address` says where."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            # Another page in the same browser may not read this one under a name of its own.
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            if host in _LOOPBACK and name not in _LOOPBACK:
                self.send_error(HTTPStatus.FORBIDDEN)
            elif asked.path == "/":
                self._answer("text/html", page.render(source.content(), live=True))
            elif asked.path == "/data.json":
                content = source.content()
                if parse_qs(asked.query).get("known") == [content["version"]]:
                    self.send_response(HTTPStatus.NO_CONTENT)
                    self.end_headers()
                else:
                    self._answer("application/json", json.dumps(content, allow_nan=False))
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """A line for every question would bury the address."""

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened on: {error.strerror}.") from None
