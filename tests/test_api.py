"""The public names, what importing costs, and which way imports point."""

import ast
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from test_report_page import make, rows

import taciturn
from taciturn.errors import install, require

PACKAGE = Path(taciturn.__file__).parent

HEAVY = (
    "jax", "jaxlib", "optax", "equinox", "flwr", "matplotlib", "plotly", "tyro", "rich",
    "h5py", "datasets", "platformdirs", "scipy", "ray",
)  # fmt: skip


def without_extras(code, but=()):
    """What `code` prints in an interpreter that has NumPy, safetensors and `but` alone."""
    refused = [name for name in HEAVY if name not in but]
    block = f"import sys; sys.modules |= dict.fromkeys({refused})\n"
    # matplotlib before 3.10.7 calls pyparsing by its old names.
    old = ["-W", "ignore::DeprecationWarning"] if "matplotlib" in but else []
    command = [sys.executable, "-W", "error", *old, "-c", block + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_public_names():
    assert taciturn.__all__ == [
        "ClientStats", "Codec", "Form", "Generated", "History", "Policy", "Rule", "StandIn",
        "Stored", "TaciturnError", "Task", "__version__", "adaptive", "as_model", "bfloat16",
        "budget", "classification", "compare", "eden", "evaluate", "fixed", "float16",
        "float32", "full", "ignore", "last", "load", "load_model", "optimal", "ou", "own",
        "parse", "peaks", "prepare", "quantize", "random", "register", "regression", "simulate",
        "sparse_ternary", "table", "top_k", "zero",
    ]  # fmt: skip
    rooms = {"core", "data", "flower", "models", "nvflare", "sim", "tasks"}
    assert set(dir(taciturn)) == {*taciturn.__all__, *rooms}
    for name in taciturn.__all__:
        assert getattr(taciturn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulation'"):
        _ = taciturn.simulation


def test_a_client_needs_numpy_alone():
    names = {path.stem for path in (PACKAGE / "core").glob("*.py")} - {"__init__"}
    modules = [f"taciturn.core.{name}" for name in names]
    assert len(modules) > 8
    out = without_extras(
        f"""
import taciturn
assert taciturn.core.__name__ == "taciturn.core"
import taciturn.errors, taciturn.runs, {", ".join(modules)}
import numpy as np
from taciturn.core import client, server, tally
policy = taciturn.parse("adaptive+ou")
state = server.init(policy, np.zeros(2))
for _ in range(3):
    config = server.open(policy, state.memory, 1)
    reply = client.respond(policy.rule, state.weights, state.weights + 1, 5, config.context, 0.5)
    reply, _ = client.through(reply, policy.codec, np.zeros(2, np.uint32))
    state, info = server.close(policy, state, tally.add(tally.start(state.weights), reply, config))
print(state.weights.tolist(), info.spoke)
"""
    )
    assert out == "[3.0, 3.0] 1\n"


def test_what_needs_an_extra_names_it():
    out = without_extras(
        """
import taciturn
from taciturn.__main__ import main

for name in ("simulate", "load_model"):
    try:
        getattr(taciturn, name)
    except taciturn.TaciturnError as error:
        print(type(error).__name__, isinstance(error, ImportError), error)
sys.stderr = sys.stdout
for command in ("run", "report", "runs"):
    sys.argv = ["taciturn", command]
    try:
        main()
    except SystemExit as stop:
        print("exit", stop.code)
"""
    )
    *names, run, one, report, two, runs, three = out.splitlines()
    for name, line in zip(("simulate", "load_model"), names, strict=True):
        assert line.startswith(f"MissingExtra True `taciturn.{name}` needs ")
        assert line.endswith(install("sim"))
    assert {one, two, three} == {"exit 1"}
    for line, extra in ((run, "sim"), (report, "report"), (runs, "report")):
        assert line == (
            f"taciturn: `tyro` is not installed. `taciturn[{extra}]` needs it. {install(extra)}"
        )


def test_the_install_command_never_names_the_package_itself(monkeypatch):
    known = ["numpy>=2.1", "rich>=13; extra == 'report'", 'matplotlib>=3.9; extra == "report"',
             "rich>=13; extra == 'sim'", "taciturn[sim, report]; extra == 'cuda'"]  # fmt: skip
    monkeypatch.setattr("importlib.metadata.requires", lambda name: known)
    assert install("cuda") == 'Install it with: pip install "rich>=13" "matplotlib>=3.9"'

    def unknown(name):  # as in a source tree
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", unknown)
    expected = 'In a clone of taciturn, install it with: pip install ".[sim]"'
    with pytest.raises(taciturn.TaciturnError, match=re.escape(expected)):
        require("no_such_module", "sim")


def test_a_report_needs_no_simulator_and_no_flower(tmp_path):
    make(tmp_path, rows("full", best=0.75))
    out = without_extras(
        f"""
from taciturn.__main__ import main
sys.argv = ["taciturn", "report", {str(tmp_path)!r}]
main()
sys.argv += ["-o", {str(tmp_path / "report.png")!r}]
main()
""",
        but=("tyro", "rich", "matplotlib"),
    )
    assert "75.00 %" in out
    assert (tmp_path / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


# What each part of the package may import of it. What is not listed is free: the command line
# stands at the end of the chain.
MAY_IMPORT = {
    "checks": "",
    "settings": "",
    "progress": "",
    "track": "progress",
    "signals": "",
    "summary": "",
    "files": "",
    "runs": "checks files",
    "core": "checks",
    "data": "checks files runs",
    "models": "core",
    "tasks": "checks core data models",
    "sim": "checks settings progress signals summary core data tasks runs",
    "federation": "checks core runs summary track",
    "flower": "checks core federation",
    "nvflare": "core federation",
    "report": "settings progress summary core data tasks sim files runs",
    "studies": "settings progress track core data tasks sim report files runs summary",
    "frontier": "settings core tasks sim report runs studies summary",
}
LIGHT = {"checks": (), "files": (), "core": (), "data": (), "runs": ("safetensors",)}  # and NumPy
ONLY_HERE = {"flwr": "flower", "nvflare": "nvflare", "tyro": "cli"}


def imports(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imports(path):
            said, (top, target, *_) = f"{path} imports {name}", f"{name}..".split(".")
            if top == "taciturn" and here in MAY_IMPORT and target in (*MAY_IMPORT, "cli"):
                assert target in (here, *MAY_IMPORT[here].split()), said
            elif top != "taciturn" and here in LIGHT:
                assert top in sys.stdlib_module_names | {"numpy", *LIGHT[here]}, said
            assert here == ONLY_HERE.get(top, here), said
