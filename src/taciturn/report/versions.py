"""What a figure was measured with."""

import functools
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax

from taciturn import __version__

_CHECKOUT = Path(__file__).parents[3]  # where the package lies in `src`


def versions() -> dict[str, str | None]:
    """Device, Python, the package and its commit, and the packages that matter."""
    return {
        "device": f"{len(jax.devices())} × {jax.devices()[0].device_kind}",
        "python": platform.python_version(),
        "taciturn": __version__,
        "commit": commit(),
        **{name: _version(name) for name in ("numpy", "jax", "optax", "equinox")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # it runs, but says nothing of itself
        return "not known"


@functools.cache
def commit() -> str | None:
    """The git commit of the package, with `-dirty` where tracked files differ from it.

    None where the package does not run from a checkout, or git cannot read it.
    """
    if not (_CHECKOUT / ".git").exists():  # a repository above it is not the package's
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
