"""A real federation with a codec for the way down, to which things happen."""

import csv
import os
import re
import signal
import time

import pytest
from loopback import Federation, kill_tree, wait_until
from test_loopback import saved

from taciturn.core.policy import parse

pytestmark = pytest.mark.nightly

POLICY, ROUNDS = "full+eden:1+down=eden:1", 20
SIZE = 101 * 5000
HAS = re.compile(r"node (\d+) has version (\d+) of the public model, checksum (\d+)")


def signalled(federation, node, number) -> None:
    """Sends a signal to a SuperNode and all that it started."""
    for pid in federation.processes():
        if os.getsid(pid) == node.pid:
            os.kill(pid, number)


def test_nodes_train_from_the_servers_public_model_whatever_happens(tmp_path):
    """One node is replaced, one misses five rounds, and the SuperLink dies."""
    folder = tmp_path / "run"
    federation = Federation(
        tmp_path / "flower", superlink=["--insecure", "--database", str(tmp_path / "link.db")]
    )
    settings = {"policy": POLICY, "folder": str(folder), "rounds": ROUNDS, "nodes": 2,
                "timeout": 10.0}  # fmt: skip
    try:
        federation.start()
        federation.submit("first", **settings)
        wait_until("two rounds are saved", lambda: saved(folder) >= 2, 120)
        kill_tree(federation.nodes[1].pid)
        federation.start_node(1)
        away, begun = federation.nodes[3], saved(folder)
        signalled(federation, away, signal.SIGSTOP)
        wait_until("it missed five rounds", lambda: saved(folder) >= begun + 6, 240)
        signalled(federation, away, signal.SIGCONT)
        wait_until("it is back", lambda: saved(folder) >= begun + 8, 120)
        kill_tree(federation.superlink.pid)
        for pid in federation.processes("flwr-serverapp"):
            kill_tree(pid)
        time.sleep(1)
        done = saved(folder)
        assert done < ROUNDS
        federation.start_superlink()
        before = sum(proxy.down for proxy in federation.proxies)
        # Nodes give up what they were pulling for the run that died only after a minute.
        federation.run("second", seconds=300, **settings | {"timeout": 150.0})
        crossed = sum(proxy.down for proxy in federation.proxies) - before
        log = federation.log("run-first") + federation.log("run-second")
    finally:
        federation.stop()
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == list(range(1, ROUNDS + 1))
    assert sum(int(row["missing"]) + int(row["errors"]) for row in rows) >= 5
    # Whoever answered had the server's model, in every round.
    found = {(int(v), int(c)) for _, v, c in HAS.findall(log)}
    versions = [version for version, _ in found]
    assert len(versions) == len(set(versions))
    # What the last round before the fall logged may be lost with the SuperLink.
    assert set(range(ROUNDS)) - {done - 1} <= set(versions) <= set(range(ROUNDS))
    assert sum(int(row["rejected"]) for row in rows) == 0
    # Most downloads were messages: with the models of those who were new or away, a tenth of full.
    message = parse(POLICY).down.nbytes(SIZE)
    assert min(int(row["bytes_down"]) / int(row["asked"]) for row in rows) < 1.05 * message
    # What the history counts is what crossed, but for HTTP's own headers and polling.
    counted = sum(
        int(row[key]) for row in rows[done:] for key in ("bytes_down", "overhead_down")
    )  # fmt: skip
    assert 0.98 * counted < crossed < 1.05 * counted
