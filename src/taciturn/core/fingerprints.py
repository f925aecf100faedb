"""What a function does, as a value: equal only where the code and all that it looks at are equal.

A compiled program is kept for the functions that it was traced from. Names do not tell: a rule that
is edited in a notebook keeps its name, and two closures of the same code may hold other numbers.
"""

import functools
import hashlib
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

Fingerprint = Any  # hashable; it keeps no reference to what is only known by its identity


def fingerprint(value: Any, known: dict[int, Any] | None = None) -> Fingerprint:
    """Of a function, its code with defaults, closure and globals; of an object, its attributes.

    What cannot be compared by value counts as itself: another object, another fingerprint. Whoever
    keeps a fingerprint keeps the function too, so that no other object gets the same identity.
    `known` has what was walked already, by identity; with each the object, so that it lives on.
    """
    known = {} if known is None else known
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return (type(value).__name__, repr(value))
    if isinstance(value, np.ndarray | np.generic):  # which may be written to
        content = np.ascontiguousarray(value).tobytes()
        return (value.shape, str(value.dtype), hashlib.blake2b(content, digest_size=16).digest())
    if isinstance(value, type | ModuleType):
        return ("object", id(value))
    if id(value) not in known:
        known[id(value)] = (value, "recursion")
        known[id(value)] = (value, _walk(value, known))
    return known[id(value)][1]


def _walk(value: Any, known: dict[int, Any]) -> Fingerprint:
    """That of what holds other values."""
    if isinstance(value, tuple | list | set | frozenset):
        return (type(value).__name__, tuple(fingerprint(item, known) for item in value))
    if isinstance(value, dict):
        return tuple((key, fingerprint(item, known)) for key, item in value.items())
    if isinstance(value, FunctionType):
        return (value.__code__, _looked_at(value, known))
    if isinstance(value, MethodType):
        return (fingerprint(value.__func__, known), fingerprint(value.__self__, known))
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return ("partial", *(fingerprint(part, known) for part in parts))
    own = getattr(value, "__dict__", None)
    if not own:
        return ("object", id(value))
    return (id(type(value)), fingerprint(dict(own), known))


def _looked_at(function: FunctionType, known: dict[int, Any]) -> Fingerprint:
    """All that a function looks at beside its arguments."""
    names, empty = sorted(_names(function.__code__)), CellType()
    cells = function.__closure__ or ()
    used = [None if cell == empty else cell.cell_contents for cell in cells]
    used += [function.__globals__.get(name) for name in names]
    modules = [item for item in used if isinstance(item, ModuleType)]
    used += [function.__defaults__, function.__kwdefaults__]
    own = [fingerprint(item, known) for item in used]
    # A module's function is known by its identity: what a whole library looks at is not walked.
    theirs = (vars(module).get(name) for module in modules for name in names)
    return (*own, *(fingerprint(x) if _is_plain(x) else ("object", id(x)) for x in theirs))


@functools.cache
def _names(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes in a function, and in all that is defined within it."""
    inner = [_names(item) for item in code.co_consts if isinstance(item, CodeType)]
    return frozenset(code.co_names).union(*inner)


def _is_plain(item: Any) -> bool:
    """Whether it is a number, a text, an array, or a collection of such."""
    if isinstance(item, dict | tuple | list | set | frozenset):
        return all(map(_is_plain, item.values() if isinstance(item, dict) else item))
    return isinstance(item, bool | int | float | complex | str | bytes | np.ndarray | None)
