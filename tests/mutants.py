"""Plants ten faults, one by one, in a copy of the repository: the quick tests must find each.

    python tests/mutants.py [--only "a lock not taken"] [--near] [--json FILE]

For each fault the tests that are nearest to it run first, and all quick tests where these see
nothing, but with `--near`. Exits with 1 where a fault was not found. Where a text below is no
longer in its file, or is there twice, nothing runs: the table has to follow the sources.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
QUICK = "not slow and not nightly"


class Mutant(NamedTuple):
    """A fault: in `file`, which lies under `src/taciturn`, `old` becomes `new`.

    `first` are the tests that run first, under `tests`.
    """

    name: str
    file: str
    first: str
    old: str
    new: str


MUTANTS = [
    Mutant("a sign flipped in the OU step", "core/ou.py", "core/test_ou.py",
           "- pull * (path.x - path.m)",
           "+ pull * (path.x - path.m)"),
    Mutant("n_k dropped from the mean", "core/tally.py", "core/test_rounds.py",
           "add_scaled(spoken, examples / chance, update)",
           "add_scaled(spoken, 1 / chance, update)"),
    Mutant("the threshold frozen in silent rounds", "core/server.py", "core/test_rounds.py",
           "heard, rule = tally.norms.weight > 0, ",
           "heard, rule = tally.n_spoke > 0, "),
    Mutant("a codec that ignores its key", "core/codecs/quantize.py", "contract/test_codecs.py",
           "hashing.bits(hashing.fold(key, hashing.LEVELS), (size,))",
           "hashing.bits(hashing.fold(key * 0, hashing.LEVELS), (size,))"),
    Mutant("what was left out forgotten in silence", "sim/client_updates.py", "sim/test_pairs.py",
           "jnp.where(said[self.runs][..., None], new, table[place])",
           "new"),
    Mutant("a checkpoint that forgets the optimiser", "sim/checkpoint.py",
           "sim/test_checkpoint.py",
           "_as(kinds.get(name), arrays[name], leaf)",
           "_as(kinds.get(name), arrays[name] * ('optimizer' not in name), leaf)"),
    Mutant("a reply with NaN accepted", "federation/aggregation.py", "flower/test_replies.py",
           "if not tally.fits(codec, np.float64(reported), np.float64(actual), size):",
           "if actual == actual and not tally.fits(codec, reported, np.float64(actual), size):"),
    Mutant("a lock not taken", "files.py", "test_files.py test_runs.py",
           "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
           "pass"),
    Mutant("bytes counted without headers", "sim/history.py", "sim/test_reference.py",
           "(answered + choice) * tally.OVERHEAD",
           "(answered + choice) * 0"),
    Mutant("1/p dropped", "core/tally.py", "sim/test_what_rules_look_at.py",
           "add_scaled(spoken, examples / chance, update)",
           "add_scaled(spoken, examples, update)"),
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", help="the fault of this name alone")
    parser.add_argument("--near", action="store_true", help="the nearest tests alone")
    parser.add_argument("--json", type=Path, help="a file for what was found")
    options = parser.parse_args()
    for mutant in MUTANTS:
        count = (ROOT / "src" / "taciturn" / mutant.file).read_text().count(mutant.old)
        if count != 1:
            raise SystemExit(f"{mutant.name}: {mutant.file} has `{mutant.old}` {count} times.")
    chosen = [mutant for mutant in MUTANTS if options.only in (None, mutant.name)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        ignore = shutil.ignore_patterns(".*", "build", "dist", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignore)
        found = {mutant.name: plant(mutant, copy, options.near) for mutant in chosen}
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(not all(row["failed"] for row in found.values()))


def plant(mutant: Mutant, copy: Path, near: bool) -> dict[str, Any]:
    """The tests that failed with the fault, and how long it took until the first of them did."""
    file, start = copy / "src" / "taciturn" / mutant.file, time.monotonic()
    good = file.read_text()
    file.write_text(good.replace(mutant.old, mutant.new))
    failed = run(copy, [f"tests/{name}" for name in mutant.first.split()], "0")
    if not failed and not near:
        failed = run(copy, ["tests"], "2")
    file.write_text(good)
    seconds = round(time.monotonic() - start)
    sys.stdout.write(f"{mutant.name}: {failed or 'NOT FOUND'}, {seconds} s\n")
    sys.stdout.flush()
    return {"failed": failed, "seconds": seconds}


def run(copy: Path, tests: list[str], processes: str) -> list[str]:
    """The first test that fails, or the first of each process."""
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    pytest = [sys.executable, "-m", "pytest", "-x", "-rfE", "-m", QUICK, "-n", processes, *tests]
    answer = subprocess.run(pytest, cwd=copy, env=environment, capture_output=True, text=True)
    if answer.returncode not in (0, 1, 2):
        raise SystemExit(f"pytest ended with {answer.returncode}:\n{answer.stdout[-3000:]}")
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", answer.stdout, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
