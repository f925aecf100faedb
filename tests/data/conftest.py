"""Where data are found and kept in tests."""

import os

import pytest

REAL_DATA = os.environ.get("TACITURN_DATA")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Nothing is found, or kept, outside of the test's own folder."""
    monkeypatch.setenv("TACITURN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TACITURN_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """An empty one, beside which there is room for more."""
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


@pytest.fixture
def real_data(monkeypatch):
    """TACITURN_DATA as it was, for tests that are skipped without it."""
    if not REAL_DATA:
        pytest.skip("TACITURN_DATA does not point to the real data")
    monkeypatch.setenv("TACITURN_DATA", REAL_DATA)
