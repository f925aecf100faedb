"""Real federations on this machine: processes, HTTP, TLS, and what can go wrong with them."""

import csv
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="the simulator is not installed")

import jax
import jax.numpy as jnp
from loopback import APP, Federation, kill, kill_tree, wait_until

import taciturn

sys.path.insert(0, str(APP))
from loopback_app import data

pytestmark = pytest.mark.slow

SILENT = (2, 3)
POLICY = "fixed:2+ou"  # far above the norms of those two, far below the others'
ADAPTIVE = "adaptive,k=0+ou"
FREE_PORT = 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'


def simulated(policy: str, rounds: int) -> np.ndarray:
    """What `taciturn.simulate`'s plain loop makes of the same clients."""
    clients = [data.client(k) for k in range(len(data.EXAMPLES))]
    together = {key: np.concatenate([c[key] for c in clients]) for key in clients[0]}

    def error(model, batch):
        return batch["x"] @ model["w"] + model["b"] - batch["y"]

    def loss(model, batch, key):
        return batch["scale"] * jnp.sum(error(model, batch) ** 2, axis=-1) / 2

    def metrics(model, batch):
        one = jnp.ones(len(batch["x"]))
        return {"accuracy": (one, one), "loss": (loss(model, batch, None), one)}

    task = taciturn.Task(
        "least-squares", taciturn.Stored.of(together, data.EXAMPLES), lambda key: data.start(),
        loss, metrics, test=clients[0], batch=max(data.EXAMPLES), lr=data.RATE, clip=None,
    )  # fmt: skip
    with jax.default_matmul_precision("highest"):
        return taciturn.simulate(task, policy, rounds=rounds, cohort=len(clients),
                                plain=True).weights[0]  # fmt: skip


def counts(metrics: dict[int, dict[str, float]], name: str) -> list[float]:
    return [metrics[t][f"taciturn.{name}"] for t in sorted(metrics)]


@pytest.mark.nightly
def test_a_federation_of_processes(tmp_path):
    federation = Federation(tmp_path / "flower")
    try:
        federation.start()
        five_rounds(federation)
        a_node_is_killed(federation)
    finally:
        federation.stop()
    assert federation.processes() == []


def five_rounds(federation):
    """The plain loop's model; silent nodes upload less than 1 % of what the others do."""
    federation.run("five", policy=POLICY)
    np.testing.assert_allclose(federation.model("five"), simulated(POLICY, 5), rtol=0, atol=1e-6)
    metrics = federation.metrics("five")
    assert counts(metrics, "spoke") == [2] * 5
    assert counts(metrics, "silent") == [2] * 5
    up = [proxy.up for proxy in federation.proxies]
    for k in SILENT:
        assert up[k] < 0.01 * min(up[0], up[1])
    # What the strategy counts is what crossed, but for HTTP's own headers and polling.
    counted = sum(counts(metrics, "bytes_up")) + sum(counts(metrics, "overhead_up"))
    assert counted < sum(up) < 1.05 * counted
    # Half of the clients were silent.
    assert sum(counts(metrics, "bytes_up_full")) == pytest.approx(2 * counted, rel=0.01)


@pytest.mark.nightly
def test_codes_on_the_wire(tmp_path):
    """A million weights, eden:0.1: a fiftieth of FedAvg's upload, all of Flower's own included.

    With a folder in TACITURN_RECORDS, what was counted is written there.
    """
    size, outputs = {"LOOPBACK_OUTPUTS": "10000", "LOOPBACK_RATE": "0.01"}, 10_000
    federation = Federation(tmp_path / "flower", nodes=3, environment=size)
    policy, rounds = "full+eden:0.1", 10
    try:
        federation.start()
        federation.run("plain", policy="", nodes=3, rounds=2, seconds=300)
        once = sum(proxy.up for proxy in federation.proxies)
        federation.run("coded", policy=policy, nodes=3, rounds=rounds, seconds=300)
        coded = sum(proxy.up for proxy in federation.proxies) - once
    finally:
        federation.stop()
    plain = once * rounds / 2
    assert 3 * rounds * 101 * outputs * 4 < plain
    assert coded < 0.02 * plain
    metrics = federation.metrics("coded")
    assert counts(metrics, "spoke") == [3] * rounds
    counted = sum(counts(metrics, "bytes_up")) + sum(counts(metrics, "overhead_up"))
    assert counted < coded
    if records := os.environ.get("TACITURN_RECORDS"):
        found = {"policy": policy, "weights": 101 * outputs, "nodes": 3, "rounds": rounds,
                 "uploaded": coded, "uploaded_by_fedavg": plain, "share": coded / plain,
                 "flwr": version("flwr")}  # fmt: skip
        Path(records, "wire.json").write_text(json.dumps(found, indent=1) + "\n")


def a_node_is_killed(federation):
    """A node dies while it trains: it is missing, neither silent nor an error."""
    process = federation.submit("killed", policy=POLICY, slow=1, rounds=1, timeout=15.0)
    asleep = federation.home / "killed.asleep"
    wait_until("the last node trains", asleep.exists)
    kill_tree(federation.nodes[-1].pid)
    process.wait(90)
    metrics = federation.metrics("killed")
    assert counts(metrics, "missing") == [1]
    assert counts(metrics, "spoke") == [2]
    assert counts(metrics, "silent") == [1]


def a_server_dies(federation, folder, turn):
    """A ServerApp is killed after two rounds; the next one runs the rounds that were left."""
    federation.submit(f"first{turn}", policy=ADAPTIVE, folder=str(folder))
    wait_until("two rounds are saved", lambda: saved(folder) >= 2, 120)
    apps = federation.processes("flwr-serverapp")
    assert apps
    for pid in apps:
        kill(pid)
    done = saved(folder)
    assert done < 5
    federation.run(f"second{turn}", policy=ADAPTIVE, folder=str(folder))
    assert sorted(federation.metrics(f"second{turn}")) == [1, 2, 3, 4, 5]


def test_a_server_that_dies_with_tls_and_authentication(tmp_path):
    keys = tmp_path / "keys"
    keys.mkdir()
    certificates(keys)
    federation = Federation(
        tmp_path / "flower",
        superlink=[
            "--ssl-ca-certfile", str(keys / "ca.crt"), "--ssl-certfile", str(keys / "server.pem"),
            "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth",
            "--database", str(tmp_path / "superlink.db"),
        ],
        supernode=[
            "--root-certificates", str(keys / "ca.crt"),
            "--auth-supernode-private-key", str(keys / "node{k}"),
        ],
        connection={"root-certificates": json.dumps(str(keys / "ca.crt"))},
    )  # fmt: skip
    try:
        federation.start_superlink()
        for k in range(4):
            federation.command("flwr", "supernode", "register", str(keys / f"node{k}.pub"), "here")
        federation.start_nodes()
        # On a machine that is busy with other things a node may fail to answer, and the round goes
        # on without it, as it should; what is tested here is the restart, so it is tried again.
        for turn in range(3):
            folder = tmp_path / f"run{turn}"
            a_server_dies(federation, folder, turn)
            with open(folder / "metrics.csv", newline="") as file:
                rows = list(csv.DictReader(file))
            assert len(rows) == 5
            if all(row["errors"] == row["missing"] == "0" for row in rows):
                break
        else:
            pytest.fail("in three tries, a node failed to answer each time")
        model = federation.model(f"second{turn}")
        np.testing.assert_allclose(model, simulated(ADAPTIVE, 5), rtol=0, atol=1e-6)
    finally:
        federation.stop()
    assert federation.processes() == []


def test_flowers_own_simulation(tmp_path):
    """The same app, with the same two lines, in Flower's simulation engine."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")
    federation = Federation(
        tmp_path / "flower", nodes=0, superlink=["--insecure", "--simulation"],
        federation={"num-supernodes": 4, "client-resources-num-cpus": 1},
    )  # fmt: skip
    try:
        federation.start()
        federation.run("simulation", policy=ADAPTIVE, rounds=4)
        assert counts(federation.metrics("simulation"), "silent") == [0, 2, 2, 2]
        expected = simulated(ADAPTIVE, 4)
        np.testing.assert_allclose(federation.model("simulation"), expected, rtol=0, atol=1e-6)
    finally:
        federation.stop()
    assert federation.processes() == []


def test_who_follows_the_documentation_gets_a_federation(tmp_path):
    """The files and commands of docs/flower.md, as they stand there but for the ports."""
    pytest.importorskip("sklearn", reason="the page's example needs scikit-learn")
    page = (APP.parents[2] / "docs" / "flower.md").read_text("utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    files = [text for kind, text in blocks if kind in ("toml", "python")][1:4]
    for name, text in zip(("pyproject.toml", "client.py", "server.py"), files, strict=True):
        (tmp_path / name).write_text(text)
    commands = next(text for kind, text in blocks if kind == "bash" and "FLWR_HOME" in text)
    federation = Federation(tmp_path / ".flwr")
    (federation.home / "config.toml").unlink()
    commands = commands.replace("8000", str(federation.port))
    commands = commands.replace("flower-superlink", f"flower-superlink --port {federation.port}")
    commands = commands.replace("$((9200 + k))", "$(python -c '" + FREE_PORT + "')")
    try:
        process = federation.shell(commands, tmp_path)
        process.wait(150)
        log = federation.log("shell")
        assert "round 1: 3 spoke of 3" in log
        assert "round 2: 3 spoke of 3" in log
        assert re.search(r"round 5: \d spoke of 3, accuracy 0\.\d+", log)
    finally:
        federation.stop()


def saved(folder) -> int:
    path = folder / "state.json"
    return json.loads(path.read_text())["round"] if path.exists() else 0


def certificates(folder) -> None:
    """A certificate authority, a certificate for this machine and a key for every node."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    (folder / "san").write_text("subjectAltName = IP:127.0.0.1, DNS:localhost\n")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt",
            "-days", "2", "-subj", "/CN=test authority")  # fmt: skip
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr",
            "-subj", "/CN=localhost")  # fmt: skip
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "server.pem", "-days", "2", "-extfile", "san")  # fmt: skip
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    for k in range(4):
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        (folder / f"node{k}").write_bytes(private)
        (folder / f"node{k}.pub").write_bytes(public)
