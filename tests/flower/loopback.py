"""A SuperLink and SuperNodes in processes of their own, on this machine alone."""

import contextlib
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import psutil

APP = Path(__file__).parent / "app"
BIN = Path(sys.executable).parent
COMMON = os.environ | {  # of all processes
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(map(str, sys.path)), "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
CLIENTS = 4  # that the app has data for; further nodes have the same again


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what: str, condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits for a condition, and no longer than `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Proxy(socketserver.ThreadingTCPServer):
    """Passes connections on to a port of this machine and counts the bytes of both directions."""

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), None)
        self.target, self.up, self.down, self.port = target, 0, 0, self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, near: socket.socket, _: object) -> None:
        target = ("127.0.0.1", self.target)  # where it is down, so is its proxy
        with contextlib.suppress(OSError), socket.create_connection(target, timeout=10) as far:
            far.settimeout(None)
            down = threading.Thread(target=self._pass, args=(far, near, "down"))
            down.start()
            self._pass(near, far, "up")
            down.join()

    def _pass(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                setattr(self, direction, getattr(self, direction) + len(data))
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Processes:
    """What a test has started, with a log for each in the folder `home`; stopped at its end."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.environment = home, environment
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        while self._all:
            kill_tree(self._all[-1].pid)
            self._all.pop().wait(20)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text("utf-8", "replace")

    def spawn(
        self, name: str, command: list[str], folder: Path | None = None
    ) -> subprocess.Popen[bytes]:
        with open(self.home / f"{name}.log", "ab") as log:
            # A session of its own: what it starts can be ended with it.
            process = subprocess.Popen(
                command, cwd=folder or self.home, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._all.append(process)
        return process


class Federation(Processes):
    """One SuperLink and some SuperNodes; stopped, with all that they started, at the block's end.

    Args:
      home: a folder for Flower's files and the logs.
      nodes: how many SuperNodes.
      superlink, supernode: options of these; `{k}` in them is the node's number.
      connection: how `flwr` reaches the SuperLink.
      federation: settings of the federation, for Flower's simulation.
      environment: variables for all its processes.
    """

    def __init__(
        self, home: Path, nodes: int = 4, superlink=("--insecure",), supernode=("--insecure",),
        connection=None, federation=None, environment=None,
    ) -> None:  # fmt: skip
        super().__init__(home, COMMON | {
            "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
            **(environment or {}),
        })  # fmt: skip
        self.count, self._federation = nodes, federation or {}
        self.port, self._superlink, self._supernode = free_port(), superlink, supernode
        self.program = [str(BIN / "flower-supernode")]  # that nodes run
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.proxies: list[Proxy] = []
        connection = connection or {"insecure": "true"}
        lines = "".join(f"{key} = {value}\n" for key, value in connection.items())
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\n{lines}'
        )

    def start(self) -> None:
        self.start_superlink()
        for k in range(self.count):
            self.start_node(k)

    def start_superlink(self) -> None:
        self.superlink = self.spawn(
            "superlink",
            [str(BIN / "flower-superlink"), "--disable-runtime-dependency-installation",
             "--host", "127.0.0.1", "--port", str(self.port), *self._superlink],
        )  # fmt: skip
        wait_until("the SuperLink listens", lambda: listening(self.port))

    def start_node(self, k: int) -> None:
        proxy = Proxy(self.port)
        self.proxies.append(proxy)
        command = [*self.program, "--superlink", f"127.0.0.1:{proxy.port}",
                   "--port", str(free_port()), "--node-config", f"partition-id={k % CLIENTS}",
                   *(option.format(k=k) for option in self._supernode)]  # fmt: skip
        self.nodes.append(self.spawn(f"supernode{k}", command))

    def submit(self, name: str, app: Path = APP, **config: object) -> subprocess.Popen[bytes]:
        """Starts `flwr run`; what the test app finds goes to files named after the run."""
        if app == APP:
            config = {"out": str(self.home / f"{name}.npz")} | config
        text = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = [str(BIN / "flwr"), "run", str(app), "here", "--stream", "--run-config", text]
        for key, value in self._federation.items():
            command += ["--federation-config", f"{key}={json.dumps(value)}"]
        return self.spawn(f"run-{name}", command)

    def run(self, name: str, seconds: float = 120.0, **config: object) -> None:
        """Runs the test app to its end."""
        self.submit(name, **config).wait(seconds)
        if not (self.home / f"{name}.json").exists():
            raise AssertionError(f"the run {name} left no results:\n{self.log(f'run-{name}')}")

    def model(self, name: str) -> np.ndarray:
        with np.load(self.home / f"{name}.npz") as arrays:
            return np.concatenate([arrays[key].ravel() for key in ("b", "w")])

    def counts(self, run: str, name: str) -> list[float]:
        """A figure of Taciturn's in each round of a run."""
        found = json.loads((self.home / f"{run}.json").read_text())
        return [found[t][f"taciturn.{name}"] for t in sorted(found, key=int)]

    def processes(self, program: str = "") -> list[int]:
        """The processes of this federation whose command line names `program`."""
        return [
            process.pid for process in psutil.process_iter(["environ", "cmdline"])
            if (process.info["environ"] or {}).get("FLWR_HOME") == str(self.home)
            and program in " ".join(process.info["cmdline"] or ())
        ]  # fmt: skip

    def kill_server(self) -> None:
        """Kills the SuperLink and the ServerApp."""
        for pid in (self.superlink.pid, *self.processes("flwr-serverapp")):
            kill_tree(pid)
        time.sleep(1)

    def stop(self) -> None:
        """Ends everything that was started, politely at first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                kill(pid, number)
            end = time.monotonic() + 5
            while self.processes() and time.monotonic() < end:
                for process in self._all:
                    process.poll()  # lets go of those that have ended
                time.sleep(0.1)
        for process in self._all:
            process.wait(10)
        for proxy in self.proxies:
            proxy.shutdown()
            proxy.server_close()  # and waits for its connections, which end with the processes
        assert self.processes() == []


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_tree(pid: int) -> None:
    """Kills a process and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(pid).children(recursive=True)
        for process in (pid, *(child.pid for child in children)):
            kill(process)


def saved(folder: Path) -> int:
    """How many rounds a run folder has saved."""
    path = folder / "state.json"
    return json.loads(path.read_text())["round"] if path.exists() else 0
