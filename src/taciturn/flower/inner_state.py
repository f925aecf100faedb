"""What the inner strategy remembers: its numbers and arrays, such as FedAdam's m_t and v_t."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

from taciturn.flower.records import arrays_of, record_of

# Flower's optimisers keep the model that they were last given: it is saved already.
_THE_MODEL = "current_arrays"


class InnerState:
    """Numbers and arrays of a strategy and of those that it wraps, by path."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        # A number that later differs from this one is state; the others are settings.
        self._settings = dict(_attributes(strategy))

    def save(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The values to save, by path and name, and the types of the attributes."""
        found = {path: value for path, value in _attributes(self._strategy)
                 if not (_is_number(value) and self._settings.get(path) == value)}  # fmt: skip
        values = {f"inner/{path}/{name}": item for path, value in found.items()
                  for name, item in _items(value).items()}  # fmt: skip
        return values, {path: type(value).__name__ for path, value in found.items()}

    def load(self, values: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
        """Sets the attributes to what was saved."""
        for path, kind in kinds.items():
            start = f"inner/{path}/"
            found = {name.removeprefix(start): value for name, value in values.items()
                     if name.startswith(start)}  # fmt: skip
            value: Any = found
            if kind == "list":
                value = [np.asarray(found[str(i)]) for i in range(len(found))]
            elif kind == "ArrayRecord":
                value = record_of(found)
            elif kind != "dict":
                value = np.asarray(found["0"]) if kind == "ndarray" else found["0"]
            *owners, name = path.split(".")
            setattr(reduce(getattr, owners, self._strategy), name, value)


def names_of(strategy: Strategy) -> list[str]:
    """The class of a strategy, and of those that it wraps."""
    inner = [value for value in vars(strategy).values() if isinstance(value, Strategy)]
    return [type(strategy).__qualname__, *(name for one in inner for name in names_of(one))]


def _attributes(strategy: Strategy, start: str = "") -> Iterator[tuple[str, Any]]:
    """What can be saved of a strategy and of those that it wraps, by path."""
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            yield from _attributes(value, f"{start}{name}.")
        elif name != _THE_MODEL and _items(value):
            yield f"{start}{name}", value


def _items(value: Any) -> dict[str, Any]:
    """The arrays and numbers of an attribute; none of others."""
    if _is_number(value) or isinstance(value, np.ndarray):
        return {"0": value}
    if isinstance(value, ArrayRecord):
        return dict(arrays_of(value))
    items = dict(enumerate(value)) if isinstance(value, list) else value
    known = isinstance(items, dict) and all(isinstance(x, np.ndarray) for x in items.values())
    return {str(name): item for name, item in items.items()} if known else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
