"""What differs between systems: spaces in paths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


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
