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
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
RECORD = TESTS / "records" / "gpu.json"


class Outcomes(dict[str, dict[str, Any]]):
    """A plugin of pytest that keeps what came of every test, by its name."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if not report.passed:
            skipped = isinstance(report.longrepr, tuple)  # file, line and reason
            message = report.longrepr[2] if skipped else report.longreprtext.splitlines()[-1]
            test |= {"outcome": report.outcome, "message": message}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help=f"where the record goes ({RECORD.name})")
    parser.add_argument("--rehearse", action="store_true", help="run on a CPU, as far as that goes")
    parser.add_argument("pytest", nargs="*", help="options of pytest, after --")
    options = parser.parse_args()
    whole = not options.rehearse and not options.pytest
    file = options.json or (RECORD if whole else None)
    sys.path.insert(0, str(TESTS.parent / "src"))
    # Both: what a GPU draws is compared with what a CPU does.
    os.environ["JAX_PLATFORMS"] = "cpu" if options.rehearse else "cuda,cpu"
    os.environ["TACITURN_GPU_TESTS"] = "cpu" if options.rehearse else ""
    import jax

    from taciturn.report.versions import versions

    platform, about = jax.default_backend(), versions()
    # Before anything is run: a record of a machine with a GPU must not be lost on one without.
    if platform != ("cpu" if options.rehearse else "gpu"):
        sys.exit(f"JAX has no GPU here: it runs on {about['device']}.")
    found = Outcomes()
    status = int(pytest.main(
        # What other versions warn of on this machine is not what these tests are about.
        [f"--rootdir={TESTS.parent}", "-m", "gpu", "-p", "no:cacheprovider", "-ra", "-W", "default",
         "--durations=10", *options.pytest, *map(str, sorted(TESTS.glob("*/test_*_on_gpu.py")))],
        plugins=[found],
    ))  # fmt: skip
    totals = Counter(test["outcome"] for test in found.values())
    status = status or int("passed" not in totals)
    backend = getattr(jax.devices()[0].client, "platform_version", "").splitlines()[:1]
    record = {
        "rehearsal": options.rehearse, "pytest": options.pytest, "platform": platform,
        "backend": backend, "versions": about, "totals": totals, "exit_status": status,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "tests": [{"test": name, **test} for name, test in found.items()],
    }  # fmt: skip
    if file:
        file.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in totals.items())
    sys.stdout.write(f"{about['device']}: {counts or 'nothing ran'}; exit status {status}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
