from __future__ import annotations

import functools
from pathlib import Path

import files
import pytest

from taciturn.tasks import TASKS

SYNTHETIC = functools.cache(TASKS["synthetic"])  # drawn once


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wrong files, made once."""
    return files.make(tmp_path_factory.mktemp("wrong"))


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TACITURN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TACITURN_DATA", raising=False)
    monkeypatch.setitem(TASKS, "synthetic", SYNTHETIC)
