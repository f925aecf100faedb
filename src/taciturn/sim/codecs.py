"""Codecs of one's own, checked before anything runs: bytes are counted by what they say."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from taciturn.core.codecs import Codec
from taciturn.core.policy import CODECS, OWN, Policy
from taciturn.errors import InputError
from taciturn.sim.local import flat_model
from taciturn.tasks.task import Task


def check_codecs(task: Task, policies: Iterable[Policy]) -> None:
    """Raises where a codec that is not the package's does not write what its `forms` say."""
    for policy in policies:
        if policy.codec.name not in CODECS or policy.codec.name in OWN:
            _check(policy.codec, flat_model(task).size)


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
