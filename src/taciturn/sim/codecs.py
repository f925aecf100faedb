"""Parts of one's own, checked before anything runs: they can be traced, and codecs say what they
write, by which bytes are counted."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core import client, server, tally
from taciturn.core.codecs import Codec
from taciturn.core.parts import Part
from taciturn.core.policy import CODECS, OWN, RULES, STAND_INS, Policy
from taciturn.core.rules import ClientStats
from taciturn.errors import InputError, TaciturnError
from taciturn.sim.model import flat_model
from taciturn.tasks.task import Task


def check_parts(task: Task, policies: Iterable[Policy], plain: bool) -> None:
    """Raises where a codec that is not the package's does not write what its `forms` say, or where
    the engine cannot trace a part; the plain loop need not."""
    for policy in policies:
        if _is_own(policy.codec, CODECS):
            _check(policy.codec, flat_model(task).size)
        if not plain:
            list(traced(policy, task))


def traced(policy: Policy, task: Task) -> Iterator[Any]:
    """What JAX traces of a round, as jaxprs, of a policy with parts that are not the package's."""
    parts = (policy.rule, RULES), (policy.stand_in, STAND_INS), (policy.codec, CODECS)
    if not any(_is_own(part, names) for part, names in parts):
        return
    size = flat_model(task).size
    weights, key = _form((size,)), _form((2,), np.uint32)
    number = _form((2,))  # of two clients
    stats = ClientStats(number, number, number, _form((2,), np.int32), number)

    def begin(weights: Any) -> Any:
        return server.remember(policy, weights, 10)

    def round(memory: Any, stats: ClientStats, update: Any, key: Any) -> Any:
        config = server.open(policy, memory, jnp.int32(2))
        does = client.decide(policy.rule, stats, config.context)
        decoded = policy.codec.decode(policy.codec.encode(update, key), key, size)
        sums = tally.of(decoded, stats.examples, does.norm, does.speaks, config, does.probability,
                        each=policy.rule.each, nbytes=does.nbytes)  # fmt: skip
        return server.learn(policy, memory, sums)

    try:
        yield jax.make_jaxpr(begin)(weights)
        memory = jax.eval_shape(begin, weights)
        yield jax.make_jaxpr(round)(memory, stats, weights, key)
    except TaciturnError:
        raise
    except Exception as error:  # whatever somebody's own code raises
        first = str(error).partition("\n")[0]
        raise InputError(
            f"{policy} cannot be traced by JAX: {type(error).__name__}: {first} A part's functions "
            "use arrays' own operators and `x.__array_namespace__()`; no `if`, and no NumPy."
        ) from error


def _is_own(part: Part, names: Mapping[str, Any]) -> bool:
    return part.name not in names or part.name in OWN


def _form(shape: tuple[int, ...], dtype: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype or jnp.zeros(0).dtype)


def _check(codec: Codec, size: int) -> None:
    update = jax.ShapeDtypeStruct((size,), np.float32)
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    code = jax.eval_shape(codec.encode, update, key)
    said, wrote = _listed(codec.forms(size)), _listed(code)
    if wrote != said:
        raise InputError(
            f"`encode` of the codec `{codec.name}` makes {wrote} of {size:,} weights, and its "
            f"`forms` say {said}."
        )
    read = jax.eval_shape(lambda code, key: codec.decode(code, key, size), code, key)
    if read.shape != (size,):
        raise InputError(
            f"`decode` of the codec `{codec.name}` makes {_listed([read])} of {size:,} weights."
        )


def _listed(arrays: Iterable[Any]) -> str:
    return ", ".join(f"{np.dtype(array.dtype).name}{list(array.shape)}" for array in arrays)
