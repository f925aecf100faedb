"""The public names, what importing costs, and which way imports point."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import taciturn

PACKAGE = Path(taciturn.__file__).parent

HEAVY = (
    "jax", "jaxlib", "optax", "equinox", "flwr", "matplotlib", "plotly", "tyro", "rich",
    "h5py", "datasets", "platformdirs",
)  # fmt: skip

BLOCK = f"""
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Refuse())
"""


def without_extras(code: str) -> str:
    """What `code` prints in an interpreter that has NumPy and safetensors alone."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCK + code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_public_names() -> None:
    assert taciturn.__all__ == [
        "Generated",
        "History",
        "Policy",
        "Stored",
        "TaciturnError",
        "Task",
        "__version__",
        "adaptive",
        "classification",
        "compare",
        "fixed",
        "float32",
        "full",
        "ignore",
        "last",
        "ou",
        "parse",
        "random",
        "simulate",
        "zero",
    ]
    assert dir(taciturn) == taciturn.__all__
    for name in taciturn.__all__:
        assert getattr(taciturn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulation'"):
        _ = taciturn.simulation


def test_a_client_needs_numpy_alone() -> None:
    modules = [
        f"taciturn.core.{path.stem}"
        for path in (PACKAGE / "core").glob("*.py")
        if path.stem != "__init__"
    ]
    assert len(modules) > 8
    out = without_extras(
        f"""
import taciturn, taciturn.errors, taciturn.runs, {", ".join(modules)}
import numpy as np
from taciturn.core import client, messages, server, tally
policy = taciturn.parse("adaptive+ou")
state = server.init(policy, np.zeros(2))
for _ in range(3):
    opening = server.open(policy, state)
    reply = client.respond(policy.rule, state.weights, state.weights + 1, 5, opening.context, 0.5)
    reply = messages.read(messages.write(reply, policy.codec), policy.codec)
    state, info = server.close(policy, state, tally.add(tally.start(state.weights), reply, opening))
print(state.weights.tolist(), info.spoke)
"""
    )
    assert out == "[3.0, 3.0] 1\n"


@pytest.mark.parametrize("name", ["simulate", "compare", "History", "Task", "Stored"])
def test_what_needs_an_extra_names_it(name: str) -> None:
    out = without_extras(
        f"""
import taciturn
try:
    taciturn.{name}
except taciturn.TaciturnError as error:
    print(type(error).__name__, isinstance(error, ImportError), error)
"""
    )
    assert out.startswith(f"MissingExtra True `taciturn.{name}` needs ")
    assert out.endswith("Install it with: pip install 'taciturn[sim]'\n")


def test_the_command_names_the_extra_it_needs() -> None:
    out = without_extras(
        """
from taciturn.__main__ import main
sys.argv = ["taciturn", "run"]
sys.stderr = sys.stdout
try:
    main()
except SystemExit as stop:
    print("exit", stop.code)
"""
    )
    assert out == (
        "taciturn: `tyro` is not installed. Install it with: pip install 'taciturn[sim]'\nexit 1\n"
    )


def test_importing_is_light() -> None:
    code = "import sys, taciturn, taciturn.core.server, taciturn.core.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "numpy" in loaded
    assert not loaded & set(HEAVY)


# What each part of the package may import, of the package and of others. What is not listed is
# free: the command line and the tables of the paper stand at the end of the chain.
MAY_IMPORT = {
    "checks": set(),
    "files": set(),
    "runs": {"files"},
    "core": {"checks"},
    "data": {"checks", "files"},
    "models": {"core"},
    "tasks": {"checks", "core", "data", "models"},
    "sim": {"checks", "core", "data", "tasks", "runs"},
    "flower": {"checks", "core", "runs"},
    "report": {"core", "data", "tasks", "sim", "files", "runs"},
    "studies": {"core", "tasks", "sim", "report", "files", "runs"},
    "paper": {"core", "tasks", "sim", "report", "studies", "runs"},
}
PARTS = (*MAY_IMPORT, "cli")
LIGHT = {
    "checks": (),
    "files": (),
    "core": (),
    "data": (),
    "runs": ("safetensors",),
}  # beside NumPy
ONLY_HERE = {"flwr": {"flower"}, "tyro": {"cli"}}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_point_one_way(path: Path) -> None:
    here = part_of(path)
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "taciturn":
            target = rest.partition(".")[0]
            if here in MAY_IMPORT and target in PARTS:
                assert target == here or target in MAY_IMPORT[here], f"{here} imports {name}"
        elif here in LIGHT:
            allowed = {"numpy", *LIGHT[here]}
            assert top in sys.stdlib_module_names | allowed, f"{here} imports {name}"
        assert here in ONLY_HERE.get(top, {here}), f"{here} imports {name}"


def test_the_walk_sees_what_it_should() -> None:
    assert "numpy" in imports(PACKAGE / "core" / "arrays.py")
    assert "taciturn.core.policy.Policy" in imports(PACKAGE / "sim" / "reference.py")
