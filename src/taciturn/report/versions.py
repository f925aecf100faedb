"""What a figure was measured with."""

import platform
from importlib.metadata import PackageNotFoundError, version

import jax

from taciturn import __version__


def versions() -> dict[str, str]:
    """Device, Python, and the packages that matter."""
    found = {
        "device": f"{len(jax.devices())} × {jax.devices()[0].device_kind}",
        "python": platform.python_version(),
        "taciturn": __version__,
    }
    for package in ("numpy", "jax", "optax", "equinox"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
