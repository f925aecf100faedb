"""The policies that are drawn against each other: the recommended one and its rivals.

experiments/frontier/README.md says whose ideas they are.
"""

from collections.abc import Mapping
from typing import Any

from taciturn.studies.comparison import policies_of

FULL, RECOMMENDED = "full", "budget"

GRID = {
    FULL: "full",
    RECOMMENDED: "budget",
    "budget:20kB": "budget:20kB",
    "budget:10kB": "budget:10kB",
    "silence + EDEN 0.1": "adaptive+ignore+eden:0.1",
    "silence, OU": "adaptive+ou",
    "silence, ignored": "adaptive+ignore",
    "LAG-style reuse": "adaptive+own",
    "EDEN 2 bits": "full+eden:2",
    "EDEN 1 bit": "full+eden:1",
    "EDEN 0.5 bits": "full+eden:0.5",
    "EDEN 0.1 bits": "full+eden:0.1",
    "QSGD 4 bits": "full+quantize:4",
    "QSGD 2 bits": "full+quantize:2",
    "sparse ternary 1 %": "full+sparse_ternary:0.01",
    "sparse ternary 1 %, feedback": "full+sparse_ternary:0.01,feedback=true",
    "optimal sampling 30 %": "optimal:0.3+zero",
    "optimal sampling 30 %, OU": "optimal:0.3+ou",
    "optimal sampling 30 %, last": "optimal:0.3+last",
    "FedPAQ": "random:0.5+ignore+quantize:4",
    "power of choice": "full",
}
# Of a model with so few weights the default may upload more than a tenth: smaller amounts as well.
SMALL, SMALLER = 10_000, {"budget:10%": "budget:10%", "budget:3%": "budget:3%"}
# Settings that an arm has beside the others'; it then runs by itself.
OWN: Mapping[str, Mapping[str, Any]] = {"power of choice": {"choice": 30}}


def named(text: str) -> dict[str, str]:
    """Policies with semicolons between them, as texts or as names of the grid, by their names."""
    parts = [part.strip() for part in text.split(";")]
    found = {name: GRID[name] for name in parts if name in GRID}
    texts = "; ".join(part for part in parts if part not in GRID)
    names = {policy: name for name, policy in GRID.items() if name not in OWN}
    return found | {names.get(one, one): one for one in (policies_of(texts) if texts else ())}
