"""NVFlare in processes of its own: its simulator, and a real federation on this machine."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
from loopback import BIN, COMMON, Processes, free_port, listening, wait_until

HERE = Path(__file__).parent
SITES = ["site-1", "site-2", "site-3"]


def environment(home: Path) -> dict[str, str]:
    return COMMON | {
        "HOME": str(home), "NVFLARE_POC_WORKSPACE": str(home / "poc"),
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
    started = Processes(home, environment(home))
    for turn in range(2):
        workspace, log = home / f"{name}{turn}", f"{name}{turn}"
        command = [sys.executable, str(script), *arguments, "--workspace", str(workspace)]
        process = started.spawn(log, command)
        end, began = time.monotonic() + seconds, False
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            began = began or "Taciturn: round" in started.log(log)
            if not began and end - time.monotonic() < seconds / 2:
                break
        started.stop()
        if began or "Taciturn: round" in started.log(log):
            break
    assert process.returncode == 0, started.log(log)[-5000:]
    return workspace / name / "server" / "simulate_job", started.log(log)


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


class Federation(Processes):
    """A server and three sites with mutual TLS, as `nvflare poc prepare` provisions them."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, environment(home))
        self.port, self.pids = free_port(), dict[str, int]()
        self.command("poc", "prepare", "-n", f"{len(SITES)}")
        project = home / "poc" / "project.yml"
        text = project.read_text().replace("8002", f"{self.port}")
        (home / "project.yml").write_text(text)
        self.command("poc", "prepare", "-i", str(home / "project.yml"), "--force")
        (self.kits,) = (home / "poc").glob("*/prod_00")

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
                self.stop()
                for log in self.home.glob("*.log"):
                    log.unlink()

    def _start(self) -> None:
        for name in ("server", *SITES):
            script = self.kits / name / "startup" / "sub_start.sh"
            self.pids[name] = self.spawn(name, ["bash", str(script)]).pid
            wait_until("the server listens", lambda: listening(self.port), 60)

    def submit(self, name: str, *arguments: str) -> None:
        """Submits a job as the administrator."""
        kit = self.kits / "admin@nvidia.com"
        command = [sys.executable, str(HERE / "job.py"), "--name", name, "--kit", str(kit)]
        process = self.spawn(f"submit-{name}", [*command, *arguments])
        assert process.wait(120) == 0, self.log(f"submit-{name}")

    def job_of_server(self) -> list[int]:
        """The server's process of the job that runs."""
        return self.processes("server", "runner_process")

    def joined(self, site: str) -> int:
        """How often a site has joined the server."""
        return self.log(site).count("Successfully registered client")

    def processes(self, name: str, part: str) -> list[int]:
        """The processes of a server or site whose command line has this part."""
        found = []
        for pid in family(self.pids[name]):
            try:
                line = " ".join(psutil.Process(pid).cmdline())
            except psutil.NoSuchProcess:
                continue
            found += [pid] if part in line and "sub_start" not in line else []
        return found
