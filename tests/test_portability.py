"""What differs between systems: spaces in paths, and names that differ by case alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def taciturn(folder: Path, *arguments: str, **environment: str) -> str:
    """What `taciturn …` prints in this folder."""
    done = subprocess.run(
        [sys.executable, "-m", "taciturn", *arguments], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_paths_may_have_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my work"
    (folder / "my data").mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.savez(
        folder / "my data" / "a b.npz",
        x=rng.normal(size=(60, 3)).astype(np.float32),
        y=rng.integers(0, 2, 60),
        client=np.arange(60) % 6,
    )
    cache = {"TACITURN_CACHE": str(tmp_path / "my cache")}
    options = ("--out", "my run", "--rounds", "2", "--cohort", "3")
    out = taciturn(folder, "run", "npz", "--data", "my data/a b.npz", *options, **cache)
    assert "Results are in my run" in out
    assert "full" in taciturn(folder, "report", "my run", "--out", "my picture.png", **cache)
    assert (folder / "my picture.png").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["my data", "my picture.png", "my run"]
    assert len(list((tmp_path / "my cache" / "parsed").iterdir())) == 1


def test_no_two_files_of_the_repository_differ_by_case_alone() -> None:
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone")
    paths = [Path(name) for name in done.stdout.split("\0") if name]
    assert paths
    # Folders count too: `Docs/a` and `docs/b` are in one folder on some systems.
    everything = {part for path in paths for part in (path, *path.parents)}
    counts = Counter(str(path).casefold() for path in everything)
    assert [name for name, count in counts.items() if count > 1] == []
