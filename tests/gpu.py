"""The suite's GPU part: runs the tests marked `gpu`, and writes down what came of it.

    python tests/gpu.py [--json FILE] [--rehearse] [-- OPTIONS OF PYTEST]

The record holds device, versions, date, and every test's outcome and seconds. The command fails
where a test failed, and also where none ran: a record of skipped tests would say nothing. With
`--rehearse` the tests run on a CPU, kernels interpreted. A rehearsal, or a part chosen by options
of pytest (`-- -k kernels`), is written down only where `--json` says. The package need not be
installed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
RECORD = TESTS / "records" / "gpu.json"

# In a process of its own: one that had started JAX would hold the GPU's memory.
MACHINE = """
import jax, json
from taciturn.report.versions import versions
backend = getattr(jax.devices()[0].client, "platform_version", "").splitlines()[:1]
print(json.dumps({"platform": jax.default_backend(), "backend": backend, "versions": versions()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help=f"where the record goes ({RECORD.name})")
    parser.add_argument("--rehearse", action="store_true", help="run on a CPU, as far as that goes")
    parser.add_argument("pytest", nargs="*", help="options of pytest, after --")
    options = parser.parse_args()
    whole = not options.rehearse and not options.pytest
    file = options.json or (RECORD if whole else None)
    with tempfile.TemporaryDirectory() as folder:
        variables = environment(options.rehearse, folder)
        about = machine(variables, "cpu" if options.rehearse else "gpu")
        report = Path(folder) / "report.xml"
        status = run_tests(variables, report, options.pytest)
        tests = read(report)
    totals = dict(sorted(Counter(test["outcome"] for test in tests).items()))
    status = status or int("passed" not in totals)
    record = {
        "rehearsal": options.rehearse, "pytest": options.pytest, **about,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "exit_status": status,
        "totals": totals, "tests": tests,
    }  # fmt: skip
    if file:
        file.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in totals.items())
    device = about["versions"]["device"]
    sys.stdout.write(f"{device}: {counts or 'nothing ran'}; exit status {status}\n")
    sys.exit(status)


def environment(rehearse: bool, cache: str) -> dict[str, str]:
    path = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        # Both: what a GPU draws is compared with what a CPU does.
        "JAX_PLATFORMS": "cpu" if rehearse else "cuda,cpu",
        "TACITURN_GPU_TESTS": "cpu" if rehearse else "",
        # The same test compiles the same programs whatever ran on this machine before.
        "JAX_COMPILATION_CACHE_DIR": cache,
    }


def machine(variables: dict[str, str], wanted: str) -> dict[str, Any]:
    command = [sys.executable, "-c", MACHINE]
    done = subprocess.run(command, env=variables, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"JAX does not start:\n{done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    # Before anything is run: a record of a machine with a GPU must not be lost on one without.
    if found["platform"] != wanted:
        sys.exit(f"JAX has no GPU here: it runs on {found['versions']['device']}.")
    return found


def run_tests(variables: dict[str, str], report: Path, more: list[str]) -> int:
    files = sorted(str(path.relative_to(ROOT)) for path in TESTS.glob("*/test_*_on_gpu.py"))
    command = [
        sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-ra",
        # What other versions warn of on this machine is not what these tests are about.
        "-W", "default", "--durations=10", f"--junitxml={report}", *more, *files,
    ]  # fmt: skip
    return subprocess.run(command, env=variables, cwd=ROOT, check=False).returncode


def read(report: Path) -> list[dict[str, Any]]:
    """The tests of a JUnit file."""
    found = []
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        name, seconds = f"{case.get('classname')}::{case.get('name')}", float(case.get("time", 0))
        test = {"test": name, "outcome": "passed", "seconds": round(seconds, 3)}
        for part in case:
            if part.tag in ("failure", "error", "skipped"):
                message = (part.get("message") or "").partition("\n")[0]
                test |= {"outcome": part.tag, "message": message}
        found.append(test)
    return found


if __name__ == "__main__":
    main()
