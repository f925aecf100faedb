"""The machine: devices, memory, and where compiled programs are kept."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from taciturn.errors import InputError


def prepare() -> None:
    """Sets JAX up for simulations; best called before anything else uses it."""
    keep_compiled_programs()
    use_cores()


def use_cores() -> None:
    """Makes every CPU core a device of its own, where JAX has not been started yet.

    One client after another on each core is faster than all cores on one client: the matrices of a
    small model do not keep two cores busy.
    """
    config: Any = jax.config
    if config.jax_num_cpu_devices > 0 or "xla_force_host" in os.environ.get("XLA_FLAGS", ""):
        return
    try:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    except (RuntimeError, AttributeError):
        return  # JAX has devices already, or the system does not tell


def mesh(count: int | None = None) -> jax.sharding.Mesh:
    """A mesh of the first `count` devices, all of them by default; its one axis is `lanes`."""
    devices = jax.devices()
    if count is not None and not 1 <= count <= len(devices):
        raise InputError(f"`devices` must be in [1, {len(devices)}], got {count}.")
    return jax.sharding.Mesh(np.array(devices[:count]), ("lanes",))


def memory() -> int:
    """Bytes that a program may use on one device."""
    device = jax.local_devices()[0]
    stats: dict[str, Any] = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024 // len(jax.local_devices())
    return 1 << 62


def least(number: int) -> int:
    """The least of what the processes of a run say, where there are several."""
    if jax.process_count() == 1:
        return number
    from jax.experimental import multihost_utils

    # In two halves: without float64 or int64, JAX has no number that holds bytes of memory.
    said = multihost_utils.process_allgather(np.array(divmod(number, 1 << 31), np.int32))
    return min(int(high) * (1 << 31) + int(low) for high, low in said.reshape(-1, 2))


@functools.cache
def keep_compiled_programs() -> None:
    """Turns on JAX's persistent compilation cache, unless the user has set one up."""
    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None:
        return
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("taciturn")) / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
