"""Runs the quick tests with the lowest and the newest of everything that pyproject.toml allows,
and, with one Python, those of `tests/flower` with every minor version of flwr that it allows.

`make test-versions` runs all of it and writes `tests/records/versions.json`. A part is run again by

    python tests/versions.py --python 3.13 --which lowest --json tests/records/versions.json
    python tests/versions.py --which flwr --json tests/records/versions.json

Every test module is imported and every part is used in many tests, so a few of them find most that
a version lacks: `--every 8` runs an eighth, chosen by a hash of each test's id.

The lowest are the lower bounds themselves of all direct dependencies, and whatever fits of what
these depend on in turn. pip is told so by constraints, so that it fails where a bound is not to be
had: too low for another package, or without a wheel for this Python.
The `cuda` extra is left out: gigabytes, and of no use without a GPU.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
WHICH = ("lowest", "newest", "flwr")
EXTRAS = ("dev", "data")
QUICK = "not slow and not nightly"
INDIRECT = ("jaxlib", "pillow")  # not ours, but results depend on them


def main():
    options = read_options()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = lower_bounds(project)
    failed, which = False, list(options.which or WHICH)
    for version in options.python or PYTHONS:
        python = find(version)
        if python is None:
            say(f"Python {version}: not on this machine, left out")
            failed |= bool(options.python)
            continue
        for name, exactly, folder in environments(which, bounds, project):
            say(f"Python {version}, {name}: installing")
            venv = options.venvs.resolve() / f"{version}-{name}".replace(" ", "-")
            row = {"date": time.strftime("%Y-%m-%d")}
            problem = install(python, venv, exactly)
            if problem and name.startswith("flwr"):
                # An index may lack what it needs in turn: it is tried with what the one before has.
                row["lacks"], minor = problem, int(name.partition(".")[2])
                problem = install(python, venv, {"flwr": f"1.{minor - 1}.*"})
                problem = problem or pip(venv, "--no-deps", f"flwr==1.{minor}.*")
            if problem:
                row |= {"installed": False, "why": problem}
                # That an index has no such flwr is for the record alone.
                failed |= not name.startswith("flwr")
            else:
                row |= test(venv, [*bounds, *INDIRECT], [folder, f"--every={options.every}"])
                failed |= row["failed"] > 0
            if options.json is not None:
                rows = json.loads(options.json.read_text()) if options.json.exists() else {}
                rows = dict(sorted((rows | {f"{version} {name}": row}).items()))
                options.json.write_text(json.dumps(rows, indent=2) + "\n")
            row.pop("packages", None)
            say(f"Python {version}, {name}: {row}")
        which = [name for name in which if name != "flwr"]  # one Python is enough for these
    return int(failed)


def environments(which, bounds, project):
    """The name of each environment, the versions that it must have, and the tests run in it."""
    if "lowest" in which:
        yield "lowest", bounds, "tests"
    if "newest" in which:
        yield "newest", {}, "tests"
    if "flwr" in which:
        (flwr,) = project["optional-dependencies"]["flower"]
        low, high = re.findall(r"1\.(\d+)", flwr)
        for minor in range(int(low), int(high)):
            yield f"flwr 1.{minor}", {"flwr": f"1.{minor}.*"}, "tests/flower"


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--python", action="append", metavar="3.11", help="a Python (default: all three)")
    add("--which", action="append", choices=WHICH, help="of the versions (default: all)")
    add("--json", type=Path, metavar="FILE", help="results; other rows that it has stay")
    add("--every", type=int, default=1, metavar="N", help="run one test in N, by a hash of its id")
    add("--venvs", type=Path, metavar="DIR", default=ROOT / ".versions", help="kept between runs")
    options = parser.parse_args()
    if options.every > 1 and options.json is not None:
        parser.error("a record is of all tests: `--json` goes without `--every`")
    return options


def say(line):
    sys.stdout.write(f"=== {line}\n")
    sys.stdout.flush()


def lower_bounds(project):
    """Every direct dependency's lower bound, by the name of the package."""
    bounds, extras = {}, project["optional-dependencies"]
    requirements = sum((extras[extra] for extra in EXTRAS), project["dependencies"])
    while requirements:
        requirement, *requirements = requirements
        if own := re.fullmatch(rf"{project['name']}\[(.+)\]", requirement):
            requirements += extras[own[1]]
            continue
        match = re.fullmatch(r"([\w-]+)(?:\[[\w,-]+\])?>=([\w.]+)(?:,<[\w.]+)?", requirement)
        if match is None:
            raise SystemExit(f"`{requirement}` in pyproject.toml needs a lower bound.")
        name, bound = match.groups()
        if bounds.setdefault(name, bound) != bound:
            raise SystemExit(f"`{name}` has two lower bounds: {bounds[name]} and {bound}.")
    return dict(sorted(bounds.items()))


def find(version):
    """An interpreter of this version: the running one, on the path, or of pyenv."""
    candidates = [sys.executable, shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.check_output([pyenv, "root"], text=True).strip()
        candidates += map(str, Path(root, "versions").glob(f"{version}.*/bin/python"))
    for candidate in filter(None, candidates):
        # A name on the path can be a shim of pyenv's for a version that is not switched on.
        command = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(command, capture_output=True, text=True).stdout.strip() == version:
            return candidate
    return None


def install(python, venv, exactly):
    """Makes a fresh environment; what pip says if it finds no versions that go together."""
    subprocess.run([python, "-m", "venv", "--clear", venv], check=True)
    constraints = venv / "constraints.txt"
    constraints.write_text("".join(f"{name}=={bound}\n" for name, bound in exactly.items()))
    return pip(venv, "--constraint", constraints, "--editable", f"{ROOT}[{','.join(EXTRAS)}]")


def pip(venv, *arguments):
    """Installs what the arguments name; what pip says if that fails."""
    # Wheels alone: nobody should need a compiler for a version that is allowed.
    command = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    answer = subprocess.run([*command, *arguments], stderr=subprocess.PIPE, text=True)
    sys.stderr.write(answer.stderr)
    if not answer.returncode:
        return ""
    errors = re.findall(r"^ERROR: (.+)$", answer.stderr, re.MULTILINE)
    return str(errors[-1]) if errors else "pip failed"


def test(venv, packages, tests):
    """Runs the quick tests among `tests` and says what came of it, with which versions."""
    python, report = venv / "bin" / "python", venv / "report.xml"
    report.unlink(missing_ok=True)
    ask = (
        "import json, sys; from importlib.metadata import version as v; "
        "print(json.dumps([sys.version.split()[0], {p: v(p) for p in sys.argv[1:]}]))"
    )
    asked = subprocess.run([python, "-c", ask, *packages], capture_output=True, check=True)
    version, versions = json.loads(asked.stdout)
    # Code on PYTHONPATH would be tested instead of this.
    environment = os.environ | {"PYTHONPATH": ""}
    pytest = [python, "-m", "pytest", "-n", "2", "-m", QUICK, f"--junitxml={report}", *tests]
    start = time.monotonic()
    code = subprocess.run(pytest, cwd=ROOT, env=environment).returncode
    seconds = round(time.monotonic() - start)
    suite = next(ElementTree.parse(report).iter("testsuite")).attrib if report.exists() else {}
    names = ("tests", "failures", "errors", "skipped")
    count, failures, errors, skipped = (int(suite.get(name, 0)) for name in names)
    failed = failures + errors or int(code != 0)  # a crash leaves no report
    return {"python": version, "passed": count - failures - errors - skipped, "failed": failed,
            "skipped": skipped, "seconds": seconds, "packages": versions}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
