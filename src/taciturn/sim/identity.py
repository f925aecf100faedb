"""What decides the result of a simulation: settings, data, and what JAX traces of a round.

A checkpoint knows its run by it. Parts of one's own are checked before anything runs: they can be
traced, and codecs say what they write, by which bytes are counted.
"""

import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
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
from taciturn.settings import Settings
from taciturn.sim import local
from taciturn.sim.model import flat_model
from taciturn.tasks.task import Task, with_test


def identity(task: Any, policies: Mapping[str, Policy], settings: Settings) -> dict[str, Any]:
    """All that decides what comes out of a simulation, as JSON gives it back."""
    return {
        "task": task.name,
        "clients": task.clients.population,
        "rows of the longest client": task.clients.longest,
        "hold_out": task.hold_out,
        "the checksum of the data": _checksum((task.clients, task.test, task.test_clients)),
        "what it does": _doing(task, policies, settings),
        **{field.name: _as_json(getattr(settings, field.name)) for field in fields(Settings)},
        "arms": {name: str(policy) for name, policy in policies.items()},
    }


def what_differs(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What is another one in two identities; empty where they are one."""
    there, here = dict(there), dict(here)
    then, now = there.pop("what it does"), here.pop("what it does")
    if all(then[name] == now[name] for name in ("jax", "device")):
        there, here = there | then, here | now
    for key, value in here.items():
        if (other := there.get(key)) != value:
            return f"{key} is {other} there and {value} here"
    return ""


def _as_json(value: Any) -> Any:
    """A setting as JSON gives it back."""
    if value is None or isinstance(value, str | int | float):
        return "inf" if value == math.inf else value
    return list(value) if type(value) is tuple else "a transformation of Optax"


def _doing(task: Any, policies: Mapping[str, Policy], settings: Settings) -> dict[str, str]:
    """What a task, the optimisers and parts of one's own do, as checksums of what JAX traces.

    Other versions of JAX, and other devices, may trace something else of the same functions.
    """
    model, transformation = flat_model(task), local.client_optimizer(settings)
    optimizer = local.server_optimizer(settings.server_optimizer, 1.0)
    one = local.make_step(task, model, transformation, settings.precision)
    clients, test = with_test(task)
    weights, batch = _form((model.size,)), (settings.batch,)
    client, where, mask = _form((), np.int32), _form(batch, np.int32), _form(batch, bool)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def step(weights: Any, client: Any, where: Any, mask: Any, key: Any) -> Any:
        params = model.unravel(weights)
        rows = clients.batch(client, where)
        return one(params, transformation.init(params), rows, mask, key, 1.0, 1.0, 1.0)

    def test_row(weights: Any) -> Any:
        return task.metrics(model.of(weights), jax.tree.map(lambda a: a[:1], test.examples))

    def move(weights: Any, mean: Any) -> Any:
        return optimizer.apply(optimizer.init(weights), mean, weights)

    own = {f"the arm {arm}": _traced(policy, task) for arm, policy in policies.items()}
    return {
        "jax": jax.__version__,
        "device": jax.devices()[0].platform,
        "the first weights": _sum_of(model.init, key),
        "a local step": _sum_of(step, weights, client, where, mask, key),
        "a test": _sum_of(test_row, weights),
        "the server's step": _sum_of(move, weights, weights),
        **{arm: found for arm, found in own.items() if found},
    }


def _sum_of(function: Callable[..., Any], *arguments: Any) -> str:
    """The checksum of what JAX traces."""
    jaxpr = jax.make_jaxpr(function)(*arguments)
    text = re.sub(r" at 0x[0-9a-f]+", "", str(jaxpr.jaxpr))
    return f"{zlib.crc32(text.encode()):08x}{_checksum(jaxpr.consts):08x}"


def _checksum(arrays: Any) -> int:
    """That of all arrays of a pytree."""
    found = 0
    for leaf in jax.tree.leaves(arrays):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if hasattr(leaf, "dtype"):
            found = zlib.crc32(np.atleast_1d(np.ascontiguousarray(leaf)).view(np.uint8).data, found)
    return found


def check_parts(task: Task, policies: Iterable[Policy], plain: bool) -> None:
    """Raises where a codec that is not the package's does not write what its `forms` say, or where
    the engine cannot trace a part; the plain loop need not."""
    for policy in policies:
        if _is_own(policy.codec, CODECS):
            _check(policy.codec, flat_model(task).size)
        if not plain:
            _traced(policy, task)


def _traced(policy: Policy, task: Task) -> str:
    """The checksums of what JAX traces of a round, where a part is not the package's."""
    parts = (policy.rule, RULES), (policy.stand_in, STAND_INS), (policy.codec, CODECS)
    if not any(_is_own(part, names) for part, names in parts):
        return ""
    size = flat_model(task).size
    weights, key = _form((size,)), _form((2,), np.uint32)
    number = _form((2,))  # of two clients
    stats = ClientStats(number, number, number, _form((2,), np.int32), number)

    begin = partial(server.remember, policy, rounds=10)

    def round(memory: Any, stats: ClientStats, update: Any, key: Any) -> Any:
        config = server.open(policy, memory, jnp.int32(2))
        does = client.decide(policy.rule, stats, config.context)
        decoded = policy.codec.decode(policy.codec.encode(update, key), key, size)
        sums = tally.of(decoded, stats.examples, does.norm, does.speaks, config, does.probability,
                        each=policy.rule.each, nbytes=does.nbytes)  # fmt: skip
        return server.learn(policy, memory, sums)

    try:
        memory = jax.eval_shape(begin, weights)
        return _sum_of(begin, weights) + _sum_of(round, memory, stats, weights, key)
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
    update, key = _form((size,), np.float32), _form((2,), np.uint32)
    code = jax.eval_shape(codec.encode, update, key)
    said, wrote = _listed(codec.forms(size)), _listed(code)
    where = f"of the codec `{codec.name}` makes"
    if wrote != said:
        raise InputError(
            f"`encode` {where} {wrote} of {size:,} weights, and its `forms` say {said}."
        )
    read = jax.eval_shape(lambda code, key: codec.decode(code, key, size), code, key)
    if read.shape != (size,):
        raise InputError(f"`decode` {where} {_listed([read])} of {size:,} weights.")


def _listed(arrays: Iterable[Any]) -> str:
    return ", ".join(f"{np.dtype(array.dtype).name}{list(array.shape)}" for array in arrays)
