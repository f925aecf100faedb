"""What aggregator and filters tell each other, and NVFlare's parameters as plain arrays.

The request is a header of the train task. NVFlare sends all clients one copy of a task, so what
differs from client to client is in it by name. The answer takes the place of the weights in a
WEIGHT_DIFF: an entry of bytes with report and code, and the arrays that always travel, as they are.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey

from taciturn.errors import InputError

REQUEST = "taciturn"  # the header of a task
NODES = "taciturn.nodes"  # by client: how often it was silent in a row, when it was last taken
ANSWER = "taciturn.answer"  # the entry with report and code
REMARK = "taciturn.remark"  # why a result is not as it was asked for
WEIGHT = str(FLMetaKey.NUM_STEPS_CURRENT_ROUND)  # what a result weighs; 1 where it does not say


def arrays_of(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters as NumPy arrays, without a copy where that can be."""
    found = {}
    for name, value in params.items():
        if hasattr(value, "materialize"):  # a tensor that waits on the server's disk
            value = value.materialize()
        if hasattr(value, "detach"):  # PyTorch's
            value = value.detach().cpu()
            value = (value.float() if f"{value.dtype}" == "torch.bfloat16" else value).numpy()
        if not isinstance(value, np.ndarray | np.number):
            raise InputError(f"`{name}` must be an array, got {type(value).__name__}.")
        found[name] = np.asarray(value)
    return found


def like(array: np.ndarray, other: Any) -> Any:
    """The array as the library and type of another one has it."""
    if not hasattr(other, "detach"):
        return array
    import torch  # whoever exchanges its tensors has it

    return torch.from_numpy(array).to(other.dtype)


def metrics_of(meta: Mapping[str, Any], initial: Mapping[str, Any] | None) -> dict[str, Any]:
    """The numbers that a result reports, and what it weighs."""
    known = (int, float, np.number)
    if not isinstance(weight := meta.get(WEIGHT, 1.0), known):
        raise InputError(f"`{WEIGHT}` must be a number, got {weight!r}.")
    numbers = {f"{name}": float(value) for name, value in (initial or {}).items()
               if isinstance(value, known) and not isinstance(value, bool)}  # fmt: skip
    return {**numbers, WEIGHT: float(weight)}
