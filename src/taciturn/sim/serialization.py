"""States as named arrays, and back: what a checkpoint keeps of a pytree.

The plain loop's states hold plain numbers beside arrays, and a number that came back as an array of
another kind would be rounded in another way: each leaf comes back as what it was.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.errors import RunError


class Packed(NamedTuple):
    """A pytree's leaves by their paths, and what those were that are no NumPy arrays."""

    arrays: Mapping[str, np.ndarray]
    kinds: Mapping[str, str]


def pack(tree: Any) -> Packed:
    """The leaves of a pytree, on the host."""
    arrays, kinds = {}, {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name, array = jax.tree_util.keystr(path), np.asarray(leaf)
        kind = _kind(leaf)
        if array.dtype.kind == "V":  # bfloat16, which files know under another name
            kind, array = array.dtype.name, array.view(f"u{array.dtype.itemsize}")
        arrays[name] = array
        if kind != "array":
            kinds[name] = kind
    return Packed(arrays, kinds)


def unpack(like: Any, packed: Packed) -> Any:
    """The pytree that was packed, of which `like` has the form."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    shapes = {name: np.shape(leaf) for name, (_, leaf) in zip(names, paths, strict=True)}
    found = {name: array.shape for name, array in packed.arrays.items()}
    if found != shapes:
        differ = sorted(set(found.items()) ^ set(shapes.items()))[0][0]
        raise RunError(
            f"The state that was saved has {found.get(differ, 'nothing')} for {differ}, and now "
            f"it is {shapes.get(differ, 'nothing')}: it was saved by another version."
        )
    leaves = [
        _as(packed.kinds.get(name, "array"), packed.arrays[name], leaf)
        for name, (_, leaf) in zip(names, paths, strict=True)
    ]
    return jax.tree_util.tree_unflatten(structure, leaves)


def _kind(leaf: Any) -> str:
    if isinstance(leaf, bool | int | float) and not isinstance(leaf, np.generic):
        return "number"
    if isinstance(leaf, np.generic):
        return "scalar"
    return "jax" if isinstance(leaf, jax.Array) else "array"


def _as(kind: str, array: np.ndarray, like: Any) -> Any:
    if kind == "number":
        return array.item()
    if kind == "scalar":
        return array[()]
    if kind not in ("array", "jax"):
        array = array.view(jnp.dtype(kind))
    # Of a form alone, the caller decides on which devices it is to be.
    return jnp.asarray(array) if kind == "jax" and isinstance(like, jax.Array) else array
