"""What a function does, as a value: equal only where the code and all that it looks at are equal.

A compiled program is kept for the functions that it was traced from. Names do not tell: a rule that
is edited in a notebook keeps its name, and two closures of the same code may hold other numbers.
"""

from types import FunctionType, ModuleType
from typing import Any

Fingerprint = Any  # hashable; it keeps no reference to what is only known by its identity


def fingerprint(value: Any, seen: frozenset[int] = frozenset()) -> Fingerprint:
    """Of a function, its code with defaults, closure and globals; of anything else, the value.

    What cannot be compared by value counts as itself: another object, another fingerprint. Whoever
    keeps a fingerprint keeps the function too, so that no other object gets the same identity.
    """
    if isinstance(value, FunctionType):
        if id(value) in seen:
            return "recursion"
        seen = seen | {id(value)}
        cells = [_content(cell) for cell in value.__closure__ or ()]
        named = [value.__globals__.get(name) for name in value.__code__.co_names]
        used = [*cells, value.__defaults__, value.__kwdefaults__, *named]
        return (value.__code__, tuple(fingerprint(item, seen) for item in used))
    if isinstance(value, tuple | list):
        return (type(value).__name__, tuple(fingerprint(item, seen) for item in value))
    if isinstance(value, dict):
        return tuple((key, fingerprint(item, seen)) for key, item in value.items())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return (type(value).__name__, repr(value))
    if isinstance(value, ModuleType):
        return value.__name__
    return ("object", id(value))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
