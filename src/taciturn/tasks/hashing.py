"""Random bits by hashing: cheap, counted, and the same in whatever batch or device they are drawn.

JAX's own generator is a cipher; drawing a dropout mask with it costs a tenth of a local step on a
CPU. A good integer hash of (key, counter) is random enough for masks, shuffles and pictures.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp


def mix(x: jax.Array) -> jax.Array:
    """MurmurHash3's finalizer: every bit of the input moves half the bits of the output."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def fold(key: jax.Array, number: int | jax.Array) -> jax.Array:
    """A new key from a key and a number, as `jax.random.fold_in` makes, at a tenth of its cost."""
    words = jax.random.key_data(key).astype(jnp.uint32)
    salt = mix(jnp.asarray(number).astype(jnp.uint32) + jnp.uint32(0x9E3779B9))
    folded = jnp.stack([mix(words[0] ^ salt), mix(words[1] + words[0] + salt)])
    return jax.random.wrap_key_data(folded)


def bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """32 random bits for every entry of an array of this shape."""
    words = jax.random.key_data(key).astype(jnp.uint32)
    counter = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return mix(mix(counter + words[0]) ^ words[1])


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zeroes entries with probability `rate` and scales the rest up; without a key, nothing."""
    if key is None:
        return x
    keep = bits(key, x.shape) >= jnp.uint32(int(rate * 2**32))
    return jnp.where(keep, x / (1 - rate), jnp.zeros_like(x))
