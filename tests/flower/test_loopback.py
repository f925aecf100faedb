"""Real federations on this machine: processes, HTTP, TLS, and what can go wrong with them."""

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
import soak
from loopback import APP, BIN, Federation, kill, saved, wait_until

import taciturn
from taciturn import runs
from taciturn.core.policy import parse

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


@pytest.mark.nightly
def test_a_federation_of_processes(tmp_path):
    """The plain loop's model; silent nodes upload less than 1 % of what the others do."""
    with Federation(tmp_path / "flower") as federation:
        federation.start()
        federation.run("five", policy=POLICY)
    np.testing.assert_allclose(federation.model("five"), simulated(POLICY, 5), rtol=0, atol=1e-6)
    assert federation.counts("five", "spoke") == federation.counts("five", "silent") == [2] * 5
    up = [proxy.up for proxy in federation.proxies]
    assert max(up[k] for k in SILENT) < 0.01 * min(up[0], up[1])
    # What the strategy counts is what crossed, but for HTTP's own headers and polling.
    counted, down = (counted_bytes(federation, "five", way) for way in ("up", "down"))
    assert counted < sum(up) < 1.05 * counted
    assert down < sum(proxy.down for proxy in federation.proxies) < 1.05 * down
    # Half of the clients were silent.
    full = sum(federation.counts("five", "bytes_up_full"))
    assert full == pytest.approx(2 * counted, rel=0.01)


def counted_bytes(federation, run, way):
    """The bytes that the strategy counted on this way."""
    return sum(sum(federation.counts(run, f"{name}_{way}")) for name in ("bytes", "overhead"))


@pytest.mark.nightly
def test_codes_on_the_wire(tmp_path):
    """A million weights, eden:0.1: a fiftieth of FedAvg's upload, all of Flower's own included.

    With a folder in TACITURN_RECORDS, what was counted is written there.
    """
    size, outputs = {"LOOPBACK_OUTPUTS": "10000", "LOOPBACK_RATE": "0.01"}, 10_000
    policy, rounds = "full+eden:0.1", 10
    with Federation(tmp_path / "flower", nodes=3, environment=size) as federation:
        federation.start()
        federation.run("plain", policy="", nodes=3, rounds=2, seconds=300)
        once = sum(proxy.up for proxy in federation.proxies)
        federation.run("coded", policy=policy, nodes=3, rounds=rounds, seconds=300)
        coded = sum(proxy.up for proxy in federation.proxies) - once
    plain = once * rounds / 2
    assert 3 * rounds * 101 * outputs * 4 < plain
    assert coded < 0.02 * plain
    assert federation.counts("coded", "spoke") == [3] * rounds
    assert counted_bytes(federation, "coded", "up") < coded
    if records := os.environ.get("TACITURN_RECORDS"):
        found = {"policy": policy, "weights": 101 * outputs, "nodes": 3, "rounds": rounds,
                 "uploaded": coded, "uploaded_by_fedavg": plain, "share": coded / plain,
                 "flwr": version("flwr")}  # fmt: skip
        Path(records, "wire.json").write_text(json.dumps(found, indent=1) + "\n")


def test_a_site_holds_its_limit_whatever_the_app_is(tmp_path):
    """Where nobody asks for codes, the app's mod lets weights through: its site does not."""
    with Federation(tmp_path / "flower", nodes=2) as federation:
        federation.start_superlink()
        federation.start_node(0)
        main = "from taciturn.flower.supernode import main; main()"
        federation.program = [sys.executable, "-c", main, "--at-most", "20kB"]
        federation.start_node(1)
        federation.run("whole", policy="", nodes=2, rounds=2)
        free, held = (proxy.up for proxy in federation.proxies)
        assert held < 60_000 < 2 * 4 * 101 * data.OUTPUTS < free
        assert "more than the 20,000 bytes that its site" in federation.log("run-whole")
        federation.run("coded", policy="full+eden:0.1", nodes=2, rounds=1)
        assert federation.counts("coded", "spoke") == [2]


def a_server_dies(federation, folder, turn):
    """A ServerApp is killed after two rounds; the next one runs the rounds that were left."""
    federation.submit(f"first{turn}", policy=ADAPTIVE, folder=str(folder))
    wait_until("two rounds are saved", lambda: saved(folder) >= 2, 120)
    apps = federation.processes("flwr-serverapp")
    assert apps
    for pid in apps:
        kill(pid)
    assert saved(folder) < 5
    federation.run(f"second{turn}", policy=ADAPTIVE, folder=str(folder))
    assert len(federation.counts(f"second{turn}", "asked")) == 5


def test_a_server_that_dies_with_tls_and_authentication(tmp_path):
    keys = tmp_path / "keys"
    keys.mkdir()
    certificates(keys)
    authority = str(keys / "server.pem")
    with Federation(
        tmp_path / "flower",
        superlink=["--ssl-ca-certfile", authority, "--ssl-certfile", authority,
                   "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth",
                   "--database", str(tmp_path / "superlink.db")],
        supernode=["--root-certificates", authority,
                   "--auth-supernode-private-key", str(keys / "node{k}")],
        connection={"root-certificates": json.dumps(authority)},
    ) as federation:  # fmt: skip
        federation.start_superlink()
        for k in range(4):
            register = [
                str(BIN / "flwr"),
                "supernode",
                "register",
                str(keys / f"node{k}.pub"),
                "here",
            ]
            assert federation.spawn("register", register).wait(60) == 0
            federation.start_node(k)
        # On a machine that is busy with other things a node may fail to answer, and the round goes
        # on without it, as it should; what is tested here is the restart, so it is tried again.
        for turn in range(3):
            folder = tmp_path / f"run{turn}"
            a_server_dies(federation, folder, turn)
            rows = runs.read_csv(folder / "metrics.csv")
            assert len(rows) == 5
            if all(float(row["errors"]) == float(row["missing"]) == 0 for row in rows):
                break
        else:
            pytest.fail("in three tries, a node failed to answer each time")
        model = federation.model(f"second{turn}")
        np.testing.assert_allclose(model, simulated(ADAPTIVE, 5), rtol=0, atol=1e-6)


def test_flowers_own_simulation(tmp_path):
    """The same app, with the same two lines, in Flower's simulation engine."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")
    with Federation(
        tmp_path / "flower", nodes=0, superlink=["--insecure", "--simulation"],
        federation={"num-supernodes": 4, "client-resources-num-cpus": 1},
    ) as federation:  # fmt: skip
        federation.start()
        federation.run("simulation", policy=ADAPTIVE, rounds=4)
        assert federation.counts("simulation", "silent") == [0, 2, 2, 2]
        expected = simulated(ADAPTIVE, 4)
        np.testing.assert_allclose(federation.model("simulation"), expected, rtol=0, atol=1e-6)


def test_who_follows_the_documentation_gets_a_federation(tmp_path):
    """The commands of docs/flower.md, as they stand there but for the ports."""
    pytest.importorskip("sklearn", reason="the page's example needs scikit-learn")
    clone = APP.parents[2]
    page = (clone / "docs" / "flower.md").read_text("utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    commands = next(text for text in blocks if "FLWR_HOME" in text)
    with Federation(tmp_path / ".flwr") as federation:
        (federation.home / "config.toml").unlink()
        port = str(federation.port)
        commands = commands.replace("$CLONE", str(clone)).replace("8000", port)
        commands = commands.replace("flower-superlink", f"flower-superlink --port {port}")
        commands = commands.replace("$((9200 + k))", "$(python -c '" + FREE_PORT + "')")
        federation.spawn("shell", ["bash", "-c", commands], tmp_path).wait(150)
        log = federation.log("shell")
    assert re.search(r"round 5: ([23]) of \1 spoke", log)
    messages = re.search(r"of which messages ([\d,]+)", log)
    assert 0 < int(messages[1].replace(",", "")) <= 5 * 3 * 200
    assert float(re.search(r"accuracy ([\d.]+)%", log)[1]) > 40


@pytest.mark.nightly
def test_everything_dies_and_comes_back(tmp_path):
    """And most downloads are messages for the public model."""
    soak.soak(tmp_path, rounds=12, nodes=4, seconds=900, seed=0)
    message = parse(soak.POLICY).down.nbytes(101 * 50)
    rows = runs.read_csv(tmp_path / "run" / "metrics.csv")
    least = min(float(row["bytes_down"]) / float(row["asked"]) for row in rows)
    assert message <= least < 1.25 * message


def certificates(folder) -> None:
    """A certificate for this machine, which vouches for itself, and a key for every node."""
    names = "subjectAltName = IP:127.0.0.1, DNS:localhost"
    commands = [["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                 "-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=localhost",
                 "-addext", names]]  # fmt: skip
    for k in range(4):
        kind = ["-t", "ecdsa", "-b", "384"]
        commands.append(["ssh-keygen", "-q", *kind, "-N", "", "-f", f"node{k}"])
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
