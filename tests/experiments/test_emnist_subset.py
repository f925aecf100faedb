"""The subset is the writers that results rest on, and no other images."""

import os

import h5py
import numpy as np
import pytest

from experiments import emnist_subset
from taciturn.data import emnist


def test_the_subset_is_written_from_the_whole_set(tmp_path, monkeypatch, capsys):
    """Of a small file in TFF's layout: two of three writers are among the 405."""
    assert len(emnist_subset.WRITERS) == 405
    monkeypatch.setenv("TACITURN_CACHE", str(tmp_path / "cache"))
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    for name in emnist_subset.CHECKSUMS:
        with h5py.File(whole / name, "w") as file:
            for i, writer in enumerate(("f0000_14", "f0424_27", "f4086_36")):
                file[f"examples/{writer}/pixels"] = np.full((3, 28, 28), i / 255, np.float32)
                file[f"examples/{writer}/label"] = np.arange(i, i + 3)
    command = ["--data", str(whole), "--out", str(part)]
    with pytest.raises(SystemExit, match=r"2 of the 405 writers .* and not e77f"):
        emnist_subset.main(command)
    assert not part.exists()
    monkeypatch.setattr(emnist_subset, "checksum", lambda writers: "of any")
    sums = dict.fromkeys(emnist_subset.CHECKSUMS, "of any")
    monkeypatch.setattr(emnist_subset, "CHECKSUMS", sums)
    emnist_subset.main(command)
    assert capsys.readouterr().out.split() == [str(part / name) for name in sums]
    everyone, chosen = emnist.read(whole), emnist.read(part)
    assert chosen.names == ("f0424_27", "f4086_36")
    for key in "xy":
        np.testing.assert_array_equal(chosen.train[key], everyone.train[key][3:])
        np.testing.assert_array_equal(chosen.test[key], everyone.test[key][3:])


def test_a_checksum_is_of_the_images_of_each_writer_in_any_order():
    a, b = ({"x": np.full((2, 28, 28), i, np.uint8), "y": np.array([0, i])} for i in (1, 2))
    turned = {key: array[::-1] for key, array in a.items()}
    first = emnist_subset.checksum({"a": a, "b": b})
    assert emnist_subset.checksum({"b": b, "a": turned}) == first
    assert emnist_subset.checksum({"a": b, "b": a}) != first
    assert emnist_subset.checksum({"a": a, "c": b}) != first


@pytest.mark.slow
@pytest.mark.skipif("TACITURN_DATA" not in os.environ, reason="needs the real data")
def test_the_real_files_have_its_writers(tmp_path):
    emnist_subset.write(tmp_path)
    counts = {"clients": 405, "train": 59_725, "test": 6_792, "left out": 0}
    assert emnist.read(tmp_path).summary() == counts
