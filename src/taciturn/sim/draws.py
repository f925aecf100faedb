"""Everything random in a simulation, as pure functions of one key.

The run's key is folded with the round, and the round's key split by purpose, so that no draw
depends on chunks, neighbours or devices. The compiled engine and the plain loop draw from here.
"""

import functools
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp

from taciturn.core.hashing import DOWN, UP, fold, mix

_ANSWERS, _LOCAL_STEPS = 1, 2  # what the key `speak` is folded with for these draws
_PERMUTATION_ROUNDS = 24

# The plain loop calls these one by one, and they are compiled once; in a program they are inlined.
_compiled = functools.partial(jax.jit, inline=True)

# Keys of a run: of its first weights, and what is folded with the number of a round.
RunKeys = namedtuple("RunKeys", "init rounds")
# Keys of a round: of who is asked, of what they say or whether they answer, of local training.
RoundKeys = namedtuple("RoundKeys", "cohort speak train")


def run_keys(seed: Any) -> RunKeys:
    return RunKeys(*jax.random.split(jax.random.key(seed)))


def round_keys(keys: RunKeys, round: int | jax.Array) -> RoundKeys:
    return RoundKeys(*jax.random.split(jax.random.fold_in(keys.rounds, round), 3))


def cohort(
    keys: RoundKeys, population: int, size: int, round: Any = 0, own: Any = None
) -> jax.Array:
    """`size` different clients, in time that depends on `size` alone; or a task's own draw."""
    if own is not None:
        return jnp.asarray(own(keys.cohort, round, size)).astype(jnp.int32)
    return permute(keys.cohort, population, jnp.arange(size)).astype(jnp.int32)


def candidates(keys: RoundKeys, examples: jax.Array, size: int) -> jax.Array:
    """`size` different clients in the order of their draw, each in proportion to its examples.

    Power of choice, π_pow-d of the paper, asks d = `size` clients for their loss, and those with
    the largest train. The largest of log n_k + Gumbel noise are draws without replacement; takes
    memory for all.

    References:
      Cho, Wang, Joshi. Client Selection in Federated Learning: Convergence Analysis and
      Power-of-Choice Selection Strategies, 2020.
    """
    noise = jax.random.gumbel(keys.cohort, examples.shape, examples.dtype)
    return jax.lax.top_k(jnp.log(examples) + noise, size)[1].astype(jnp.int32)


def uniforms(keys: RoundKeys, size: int) -> jax.Array:
    """The draw that each client of the cohort gives its rule."""
    return jax.random.uniform(keys.speak, (size,))


def answers(keys: RoundKeys, size: int, dropout: Any) -> jax.Array:
    """Who of the cohort answers at all."""
    return jax.random.uniform(jax.random.fold_in(keys.speak, _ANSWERS), (size,)) >= dropout


def local_steps(keys: RoundKeys, steps: jax.Array, stragglers: Any) -> jax.Array:
    """How many of its local steps each client of the cohort does before time is up.

    With probability `stragglers` a uniform draw from 1 to all of them, else all.
    """
    slow, part = jax.random.uniform(jax.random.fold_in(keys.speak, _LOCAL_STEPS), (2, len(steps)))
    done = jnp.ceil(part * steps.astype(part.dtype)).astype(steps.dtype)
    return jnp.where(slow < stragglers, jnp.maximum(done, 1), steps)


@_compiled
def shuffled(
    keys: RoundKeys, slot: jax.Array, epoch: jax.Array, n: jax.Array, i: jax.Array
) -> jax.Array:
    """Which of its `n` examples the client in this slot sees at position `i` of this epoch."""
    return permute(_local_key(keys, slot, 2 * epoch), n, i, unroll=True).astype(jnp.int32)


@_compiled
def dropout_key(keys: RoundKeys, slot: jax.Array, step: jax.Array) -> jax.Array:
    """The key of one local step of the client in this slot."""
    return _local_key(keys, slot, 2 * step + 1)


def _local_key(keys: RoundKeys, slot: jax.Array, number: jax.Array) -> jax.Array:
    words = fold(fold(jax.random.key_data(keys.train), slot), number)
    return jax.random.wrap_key_data(words)


@_compiled
def codec_key(keys: RoundKeys, client: jax.Array) -> jax.Array:
    """The key that a client's codec draws from, as two words: the server knows it too."""
    return fold(fold(jax.random.key_data(keys.speak), UP), client)


@_compiled
def downlink_key(keys: RoundKeys) -> jax.Array:
    """The key of what the server sends when this round has ended, as two words."""
    return fold(jax.random.key_data(keys.speak), DOWN)


@functools.partial(_compiled, static_argnames="unroll")
def permute(
    key: jax.Array, n: int | jax.Array, index: jax.Array, unroll: bool = False
) -> jax.Array:
    """Where a random permutation of range(n), chosen by `key`, sends `index`.

    A swap-or-not shuffle: each round pairs x with (pivot − x) mod n and swaps half of the pairs.
    Nothing is sorted or stored, so an index of a permutation of a billion costs what one of ten
    does. Unrolled it is one fused kernel, slower to compile and faster in a loop.

    References:
      Hoang, Morris, Rogaway. An Enciphering Scheme Based on a Card Shuffle, 2012.
    """
    words = jax.random.key_data(key).astype(jnp.uint32)
    n = jnp.asarray(n, jnp.uint32)
    x = index.astype(jnp.uint32)

    def swap_or_not(i: int | jax.Array, x: jax.Array) -> jax.Array:
        salt = jnp.uint32(0x9E3779B9) * (jnp.asarray(i).astype(jnp.uint32) + 1)
        pivot = mix(words[0] + salt) % n
        partner = jnp.where(x > pivot, pivot + n - x, pivot - x)
        swap = mix(jnp.maximum(x, partner) ^ mix(words[1] + salt)) >> 31
        return jnp.where(swap == 1, partner, x)

    return jax.lax.fori_loop(0, _PERMUTATION_ROUNDS, swap_or_not, x, unroll=unroll)
