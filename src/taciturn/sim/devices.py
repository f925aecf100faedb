"""The machine: devices, memory, and where compiled programs are kept."""

import contextlib
import os
from typing import Any

import jax
import numpy as np

from taciturn.data import sources
from taciturn.errors import InputError, require


def prepare() -> None:
    """Sets JAX up for simulations: every core a device, and compiled programs kept on disk.

    The command line calls it. Nothing else in this package changes JAX's configuration; a script or
    a notebook that wants the same calls it first, before anything uses JAX. A cache of programs
    that somebody has set up stays.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir is None:
        folder = sources.cache_folder() / "compiled"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    use_cores()


def use_cores() -> None:
    """Makes every CPU core a device of its own, where JAX has not been started yet.

    One client after another on each core is faster than all cores on one client: the matrices of a
    small model do not keep two cores busy.
    """
    config: Any = jax.config
    if config.jax_num_cpu_devices > 0 or "xla_force_host" in os.environ.get("XLA_FLAGS", ""):
        return
    with contextlib.suppress(RuntimeError):  # JAX has devices already
        jax.config.update("jax_num_cpu_devices", _cores())


def _cores() -> int:
    """How many cores this process may use; macOS and Windows tell only how many there are."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def mesh(count: int | None = None) -> jax.sharding.Mesh:
    """A mesh of the first `count` devices, all of them by default; its one axis is `lanes`."""
    devices = jax.devices()
    if count is not None and not 1 <= count <= len(devices):
        raise InputError(f"`devices` must be in [1, {len(devices)}], got {count}.")
    return jax.sharding.Mesh(np.array(devices[:count]), ("lanes",))


def memory() -> int:
    """Bytes that a program may use on one device."""
    on_host = jax.local_devices()
    stats: dict[str, Any] = on_host[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return int(require("psutil", "sim").virtual_memory().available) // len(on_host)


def bytes_of(tree: Any) -> int:
    """Bytes of all arrays of a pytree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def bytes_needed(compiled: Any) -> int:
    """Bytes that a compiled program takes on one device; 0 where nobody says."""
    if (sizes := compiled.memory_analysis()) is None:
        return 0
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(sizes.temp_size_in_bytes + held)


def least(number: int) -> int:
    """The least of what the processes of a run say, where there are several."""
    if jax.process_count() == 1:
        return number
    from jax.experimental import multihost_utils

    # In two halves: without float64 or int64, JAX has no number that holds bytes of memory.
    said = multihost_utils.process_allgather(np.array(divmod(number, 1 << 31), np.int32))
    return min(int(high) * (1 << 31) + int(low) for high, low in said.reshape(-1, 2))
