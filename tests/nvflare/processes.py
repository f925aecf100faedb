"""NVFlare in processes of its own: its simulator, and a real federation on this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
sys.path.insert(0, str(HERE.parent / "flower"))
from loopback import free_port, kill, listening, saved, wait_until  # noqa: E402, F401

SITES = ["site-1", "site-2", "site-3"]


def environment(home: Path) -> dict[str, str]:
    return os.environ | {
        "HOME": str(home), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, sys.path)), "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1", "NVFLARE_POC_WORKSPACE": str(home / "poc"),
        # A client that died is given up after seconds and not minutes.
        "NVFLARE_DEAD_CLIENT_GRACE_PERIOD": "2", "NVFLARE_DEAD_CLIENT_CHECK_LEAD_TIME": "2",
    }  # fmt: skip


def simulate(
    home: Path, name: str, *arguments: str, script: Path = HERE / "job.py", seconds: float = 120.0
) -> tuple[Path, str]:
    """Runs a script's job in NVFlare's simulator: where the server's files lie, and the log.

    The simulator hangs now and then while it starts: it is started once more, and no result is
    tried twice.
    """
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(script), *arguments]
    for turn in range(2):
        workspace, log = home / f"{name}{turn}", home / f"{name}{turn}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*command, "--workspace", str(workspace)], cwd=home, env=environment(home),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        end, began = time.monotonic() + seconds, False
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            began = began or "Taciturn: round" in log.read_text("utf-8", "replace")
            if not began and end - time.monotonic() < seconds / 2:
                break
        stop(process)
        if began or "Taciturn: round" in log.read_text("utf-8", "replace"):
            break
    text = log.read_text("utf-8", "replace")
    assert process.returncode == 0, text[-5000:]
    return workspace / name / "server" / "simulate_job", text


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it started."""
    for pid in family(process.pid):
        kill(pid)
    process.wait(20)


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


class Federation:
    """A server and three sites with mutual TLS, as `nvflare poc prepare` provisions them."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.environment = environment(home)
        self._all: dict[str, subprocess.Popen[bytes]] = {}
        home.mkdir(parents=True, exist_ok=True)
        self.command("poc", "prepare", "-n", f"{len(SITES)}")
        project = home / "poc" / "project.yml"
        text = project.read_text().replace("8002", f"{self.port}")
        (home / "project.yml").write_text(text)
        self.command("poc", "prepare", "-i", str(home / "project.yml"), "--force")
        (self.kits,) = (home / "poc").glob("*/prod_00")

    def __enter__(self) -> "Federation":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all.values():
            stop(process)

    def command(self, *arguments: str) -> None:
        found = subprocess.run(
            [str(BIN / "nvflare"), *arguments], cwd=self.home, env=self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert found.returncode == 0, found.stdout + found.stderr

    def start(self) -> None:
        """Starts all; once more where not everyone is there in time."""
        for last in (False, True):
            try:
                self._start()
                wait_until("all sites have joined", lambda: all(map(self.joined, SITES)))
                return
            except TimeoutError:
                if last:
                    raise
                for name, process in self._all.items():
                    stop(process)
                    (self.home / f"{name}.log").unlink()

    def _start(self) -> None:
        self.run("server", ["bash", str(self.kits / "server" / "startup" / "sub_start.sh")])
        wait_until("the server listens", lambda: listening(self.port), 60)
        for site in SITES:
            self.run(site, ["bash", str(self.kits / site / "startup" / "sub_start.sh")])

    def run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with open(self.home / f"{name}.log", "ab") as log:
            self._all[name] = subprocess.Popen(
                command, cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self._all[name]

    def submit(self, name: str, *arguments: str) -> None:
        """Submits a job as the administrator."""
        kit = self.kits / "admin@nvidia.com"
        command = [sys.executable, str(HERE / "job.py"), "--name", name, "--kit", str(kit)]
        process = self.run(f"submit-{name}", [*command, *arguments])
        assert process.wait(120) == 0, self.log(f"submit-{name}")

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text("utf-8", "replace")

    @property
    def server(self) -> int:
        return self._all["server"].pid

    def job_of_server(self) -> list[int]:
        """The server's process of the job that runs."""
        return self.processes("server", "runner_process")

    def joined(self, site: str) -> int:
        """How often a site has joined the server."""
        return self.log(site).count("Successfully registered client")

    def processes(self, name: str, part: str) -> list[int]:
        """The processes of a server or site whose command line has this part."""
        found = []
        for pid in family(self._all[name].pid):
            try:
                line = " ".join(psutil.Process(pid).cmdline())
            except psutil.NoSuchProcess:
                continue
            found += [pid] if part in line and "sub_start" not in line else []
        return found
