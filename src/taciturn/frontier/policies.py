"""The policies that are drawn against each other: the recommended one and its rivals."""

from collections.abc import Mapping
from typing import Any, NamedTuple

RECOMMENDED = "budget"


class Entry(NamedTuple):
    """A policy, whose idea it is, and how it differs from the form of the paper.

    Attributes:
      name: short, for tables and pictures.
      policy: as text.
      reference: the paper.
      differs: what is other than there; empty where nothing is.
      settings: those that it has beside an experiment's; it then runs by itself.
    """

    name: str
    policy: str
    reference: str
    differs: str = ""
    settings: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return ", ".join([self.policy, *(f"{key}={value}" for key, value in self.settings.items())])


_FEDAVG = "McMahan et al., 2017"
_SILENCE = "Ribero, Vikalo, 2020"
_EDEN = "Vargaftik et al., ICML 2022"
_QSGD = "Alistarh et al., NeurIPS 2017"
_TERNARY = "Sattler et al., 2019"
_BLOCKS = "rotated in blocks of 4,096 weights, one scale each"
_BUDGET = "bytes for each client in proportion to what its update weighs, in `peaks`"
_SCALED = (
    "probabilities are scaled by the last round's sums instead of a second exchange, and are 0.05 "
    "at the least"
)
_LEVELS = "a scale for each 256 weights, their largest, instead of the norm; without entropy code"

ENTRIES = (
    Entry("full", "full", _FEDAVG),
    *(Entry(text, text, "Taciturn", _BUDGET)
      for text in (RECOMMENDED, "budget:20kB", "budget:10kB")),
    Entry("silence + EDEN 0.1", "adaptive+ignore+eden:0.1", f"{_SILENCE}; {_EDEN}", _BLOCKS),
    Entry("silence, OU", "adaptive+ou", _SILENCE, "â is held in [0, 1]"),
    Entry("silence, ignored", "adaptive+ignore", _SILENCE),
    Entry("LAG-style reuse", "adaptive+own", "Chen et al., NeurIPS 2018",
          "the norm of an update decides who is silent, instead of how much it changed"),
    *(Entry(f"EDEN {bits:g} bit{'s' * (bits != 1)}", f"full+eden:{bits:g}", _EDEN, _BLOCKS)
      for bits in (2, 1, 0.5, 0.1)),
    *(Entry(f"QSGD {bits} bits", f"full+quantize:{bits}", _QSGD, _LEVELS) for bits in (4, 2)),
    Entry("sparse ternary 1 %", "full+sparse_ternary:0.01", _TERNARY,
          "without feedback, and the way down is float32"),
    Entry("sparse ternary 1 %, feedback", "full+sparse_ternary:0.01,feedback=true", _TERNARY,
          "the way down is float32; a client keeps its residual until it is drawn again"),
    Entry("optimal sampling 30 %", "optimal:0.3+zero", "Chen, Horváth, Richtárik, 2020",
          _SCALED),
    *(Entry(f"optimal sampling 30 %, {name}", f"optimal:0.3+{stand_in}",
            "Chen, Horváth, Richtárik, 2020; Taciturn", f"{_SCALED}; f + Σ w(Δ − f)/p, f is {what}")
      for name, stand_in, what in (("OU", "ou", "the OU forecast"),
                                   ("last", "last", "the last mean update"))),
    Entry("FedPAQ", "random:0.5+ignore+quantize:4", "Reisizadeh et al., AISTATS 2020",
          "half of a cohort that is drawn already; with all of it, it is QSGD 4 bits"),
    Entry("power of choice", "full", "Cho, Wang, Joshi, 2020",
          "a loss takes as many bytes as a silent client's message; the model goes down to all 30 "
          "candidates, which is not upload", {"choice": 30}),
)  # fmt: skip

# What long runs have: full, the recommended policy, what it is made of, and the nearest rivals.
_LONG = ("full", RECOMMENDED, "adaptive+ignore+eden:0.1", "full+eden:1", "full+eden:0.1",
         "full+sparse_ternary:0.01,feedback=true")  # fmt: skip
_LONGER = (
    "adaptive+ignore",
    "full+eden:0.5",
    "full+quantize:2",
    "random:0.5+ignore+quantize:4",
    "optimal:0.3+zero",
)

GRID = {entry.name: entry.policy for entry in ENTRIES}
OWN = {entry.name: entry.settings for entry in ENTRIES if entry.settings}


def _some(policies: tuple[str, ...]) -> dict[str, str]:
    """The entries of these policies that run side by side."""
    return {name: text for name, text in GRID.items() if text in policies and name not in OWN}


FEW, MORE = _some(_LONG), _some((*_LONG, *_LONGER))


def entry_of(policy: str) -> Entry | None:
    """What is known of a policy; None of one that somebody wrote."""
    return next((entry for entry in ENTRIES if str(entry) == policy), None)
