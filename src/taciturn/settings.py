"""The settings of a simulation, written once.

The fields of `Settings` are the arguments of `simulate` and `compare` and the options of
`taciturn run`; those marked `_static` are what a compiled program depends on. Nothing here needs
JAX, so that the command line can be read without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Optimizer: TypeAlias = Any  # a name, or an Optax transformation
else:
    Optimizer = str  # all that the command line can say

UNSET: Any = None  # until `taciturn.sim.defaults` fills it in


def _static(default: Any) -> Any:
    """A field that sets a shape, or otherwise makes another program."""
    return field(default=default, metadata={"static": True})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a simulation runs. What is left out has a default, of the task in part."""

    rounds: int = 100
    """How many rounds."""
    cohort: int = _static(10)
    """How many clients are asked in a round."""
    epochs: int = _static(UNSET)
    """Passes over a client's data in a round (default: the task's)."""
    batch: int = _static(UNSET)
    """Examples in a local batch (default: the task's)."""
    lr: float = UNSET
    """The clients' learning rate (default: the task's)."""
    clip: float = UNSET
    """Largest norm of a batch's gradient; `inf` for no clipping (default: the task's)."""
    client_optimizer: Optimizer = _static("sgd")
    """What clients train with: sgd, momentum, adam or yogi; in Python also an Optax transformation
    with its own rate."""
    prox: float = _static(0.0)
    """FedProx: how strongly a client's weights are pulled back to those it was sent, μ."""
    lr_decay: float = 1.0
    """What the clients' learning rate is multiplied by after every round."""
    server_optimizer: Optimizer = _static("sgd")
    """What the server does with the mean update, of the same choice; sgd at 1 is averaging."""
    server_lr: float = UNSET
    """The server's learning rate (default: 1)."""
    seeds: int | tuple[int, ...] = 1
    """One number: so many runs, with seeds from 0. Several: these seeds."""
    seed: int | None = None
    """One run with this seed, instead of `seeds`."""
    evaluate_every: int = UNSET
    """Rounds between tests (default: twenty tests in a run). The last round is always tested."""
    precision: str = _static("float32")
    """Of matrix products: float32, tf32 or bfloat16. On EMNIST and Shakespeare all reach the same
    accuracy (docs/performance.md); on a GPU bfloat16 is the fastest. Weights are always float32."""
    devices: int | None = _static(None)
    """How many devices to use: GPUs, or cores of a CPU (default: all)."""
    lanes: int | None = _static(None)
    """How many clients train at the same time on a device (default: chosen by itself)."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """One per run."""
        if self.seed is not None:
            return (self.seed,)
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds)

    @property
    def form(self) -> Settings:
        """What a compiled program depends on: the static fields and the number of seeds."""
        static = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata.get("static")}
        return Settings(seeds=len(self.all_seeds), **static)

    def evaluates(self, round: int) -> bool:
        """Whether the model is tested after this round (counted from 0)."""
        return (round + 1) % self.evaluate_every == 0 or round + 1 == self.rounds
