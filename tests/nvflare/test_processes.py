"""NVFlare itself, in processes of this machine: its simulator, and a federation with mutual TLS."""

import re

import numpy as np
import pytest
from job import CLIENTS, SEED, SHAPE
from loop import Loop
from loopback import kill, saved, wait_until
from processes import HERE, SITES, Federation, family, simulate
from train import target

from taciturn import runs
from taciturn.nvflare import Taciturn

pytestmark = pytest.mark.slow

KEY = "numpy_key"  # what NVFlare calls the one array of a NumPy model
POLICY = "adaptive,k=0+ou+eden:1"


def step(k, params):
    """What train.py does."""
    params[KEY] += np.float32(0.5) * (target(SITES[k], SHAPE) - params[KEY])
    return params, 10 * (k + 1)


def in_process(policy, rounds, sites=SITES):
    """The model of the same federation to which nothing happens, and its history."""
    aggregator = Taciturn(policy, seed=SEED)
    loop = Loop(aggregator, {KEY: np.zeros(SHAPE, "f4")}, step, sites, rounds)
    return loop.run()[KEY], aggregator._server.history


def model(folder):
    return np.load(folder / "models" / "server.npy")


def test_the_simulator_ends_as_the_parts_do_in_one_process(tmp_path):
    """A job of differences that is submitted again, the second time with scripts of their own.

    Scripts train in the arrays they get: plain NVFlare would send differences of 0.
    """
    expected, rows = in_process(POLICY, 4)
    spoke = [row["spoke"] for row in rows]
    assert 0 < sum(spoke) < 4 * CLIENTS
    job = ["--policy", POLICY, "--folder", str(tmp_path / "run"), "--diff"]
    _, first = simulate(tmp_path / "first", "job", *job, "--rounds", "2")
    folder, log = simulate(tmp_path / "second", "job", *job, "--rounds", "4", "--external")
    assert "going on after round 2 of 4" in log
    np.testing.assert_allclose(model(folder), expected, rtol=0, atol=1e-6)
    found = re.findall(r"round (\d): (\d) of 3 spoke, \d silent, 0 rejected", first + log)
    assert found == [(f"{t}", f"{n}") for t, n in enumerate(spoke, 1)]
    up = sum(row["bytes_up"] + row["overhead_up"] for row in rows)
    assert f"Taciturn: uploaded {up:,} of " in log


def test_the_example_learns_and_uploads_less(tmp_path):
    pytest.importorskip("sklearn", reason="the example needs scikit-learn")
    script = HERE.parents[1] / "examples" / "nvflare-digits" / "job.py"
    _, log = simulate(tmp_path, "digits", script=script)
    assert 5 < float(re.search(r"Taciturn: uploaded .* \((.*) %\)", log)[1]) < 20
    assert float(re.findall(r"validation metric ([\d.]+) from client", log)[-1]) > 0.85


def test_a_federation_in_which_everything_dies_ends_and_counts_nothing_twice(tmp_path):
    folder, bad, rounds = tmp_path / "run", SITES[2], 10
    job = ["--policy", "full+eden:1", "--rounds", f"{rounds}", "--folder", str(folder),
           "--script-args=--garbage " + bad]  # fmt: skip
    with Federation(tmp_path / "nvflare") as federation:
        # What a site can require, as the guide has it: its filters are before those of the job.
        page = (HERE.parents[1] / "docs" / "nvflare.md").read_text("utf-8")
        required = re.search(r"```json\n(.*?)```", page, re.DOTALL)[1]
        (federation.kits / SITES[0] / "local" / "privacy.json").write_text(required)
        federation.start()
        federation.submit("first", *job)
        wait_until("two rounds are saved", lambda: saved(folder) >= 2, 90)
        # NVFlare ends a job whose process dies at a site.
        for pid in federation.processes(SITES[1], "worker_process"):
            kill(pid)
        wait_until("the job has ended", lambda: not federation.job_of_server(), 60)
        first = saved(folder)
        for pid in federation.processes(SITES[1], "client_train"):
            kill(pid)
        wait_until("the site is back", lambda: federation.joined(SITES[1]) == 2, 60)
        federation.submit("second", *job)
        wait_until("rounds go on", lambda: saved(folder) >= first + 2, 90)
        for pid in federation.job_of_server():
            kill(pid)
        second = saved(folder)
        assert first < second < rounds
        federation.submit("third", *job)
        wait_until("the run ends", (folder / "summary.json").exists, 120)
        log = federation.log("server")
    assert family(federation.pids["server"]) == []
    for done in (first, second):
        assert f"going on after round {done} of {rounds}" in log
    rows = [{key: float(value or "nan") for key, value in row.items() if key != "arm"}
            for row in runs.read_csv(folder / "metrics.csv")]  # fmt: skip
    assert [row["round"] for row in rows] == list(range(1, rounds + 1))
    counted = ("spoke", "silent", "rejected", "errors", "missing")
    assert all(sum(row[key] for key in counted) == row["asked"] for row in rows)
    assert [row["rejected"] for row in rows] == [1] * rounds
    table = {row["node"]: row for row in runs.read_csv(folder / "nodes.csv")}
    assert {site: int(table[site]["spoke"]) for site in SITES} == {
        site: rounds * (site != bad) for site in SITES
    }
    found = runs.read_arrays(folder / "weights.safetensors")[KEY]
    expected, _ = in_process("full+eden:1", rounds, [site for site in SITES if site != bad])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
