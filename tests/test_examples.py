"""Examples run as a reader would run them; the peers benchmark judges whether sides agree."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
OWN_PARTS = ("own_rule", "own_stand_in", "own_codec")
CHANCE = {"equinox_task": 100 / 3, "flax_task": 50.0}


def test_nobody_is_told_to_install_a_name_that_a_stranger_could_take():
    """The package is in no index."""
    for path in [*EXAMPLES.glob("*/pyproject.toml"), *ROOT.glob("tests/*/*/pyproject.toml")]:
        needed = tomllib.loads(path.read_text("utf-8"))["project"]["dependencies"]
        assert not [one for one in needed if one.startswith("taciturn")], path
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *EXAMPLES.glob("*/README.md")]:
        asked = re.findall(r"pip install [^`\n]*", path.read_text("utf-8"))
        assert not [one for one in asked if re.search(r"""[ '"]taciturn(\[|['" ]|$)""", one)], path


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OWN_PARTS, *CHANCE])
def test_an_example_runs_learns_and_uploads_less(name):
    result = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")], text=True,
        capture_output=True, timeout=300,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    line = r"^(\S+) +([\d.]+) % right, +([\d.]+) % of the uploads$"
    (full, *others) = re.findall(line, result.stdout, re.MULTILINE)
    assert (full[0], float(full[2])) == ("full", 100)
    assert len({upload for *_, upload in others}) == len(others) > 0
    least = CHANCE[name] + 20 if name in CHANCE else 90
    assert all(float(accuracy) > least for _, accuracy, _ in (full, *others))
    assert all(1 < float(upload) < 90 for *_, upload in others)


def test_losses_of_peers_that_differ_are_noticed(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "peers"))
    summarise = importlib.import_module("run").summarise
    for name in ("run", "common"):
        sys.modules.pop(name, None)

    def reports(*losses):
        one = {"side": "", "seconds": [1.0], "examples": [2000], "accuracy": 0.5, "weights": 1,
               "versions": {"python": "3"}, "device": None}  # fmt: skip
        return [one | {"loss": loss} for loss in losses]

    for pfl, without, agree in (
        (2.0, 3.0005, True),
        (2.0, 3.0020, False),  # rounding is not that large
        (2.3, 3.0005, False),  # nor is chance
    ):
        sides = {"pfl": reports(pfl + 0.01, pfl - 0.01, pfl), "taciturn": reports(2.0, 2.01, 1.99)}
        found = summarise("cnn", sides, {"pfl": without, "taciturn": 3.0})
        assert found["agree"] is agree
