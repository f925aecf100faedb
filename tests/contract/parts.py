"""All parts of the registries, with arguments, and which of them the quick tests take.

A new part belongs into `ARGUMENTS` if it takes any, and into `QUICK`: the others of its forms are
nightly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from taciturn.core.policy import CODECS, RULES, STAND_INS, spell


def with_feedback(arguments: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """These, and again with clients that keep what was left out."""
    return [a | more for a in arguments for more in ({}, {"feedback": True})]


ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "fixed": [{"threshold": t} for t in (0.0, 1.25, float("inf"))],
    "adaptive": [
        {},
        {"k": 0.0},
        {"k": -0.3},
        {"weighted": False},
        {"k": 1 / 3, "weighted": False},
        {"robust": True},
        {"k": 0.0, "robust": True, "at_most": 2},
    ],
    "budget": [
        {},
        {"amount": "1%"},
        {"amount": "300B"},
        {"amount": "60B", "per": "client"},
        {"amount": "2kB", "per": "run"},
    ],
    "optimal": [{"share": 0.3}, {"share": 1.0, "floor": 0.5}],
    "random": [{"probability": p} for p in (0.0, 0.5, 1.0)],
    "ou": [{}, {"cap": True}, {"mode": "paper"}, {"mode": "paper", "cap": True}],
    "quantize": with_feedback({"bits": bits} for bits in (1, 2, 4, 8)),
    "eden": with_feedback({"bits": bits} for bits in (0.02, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0)),
    "top_k": with_feedback({"share": share} for share in (0.01, 1.0, 0.1)),
    "sparse_ternary": with_feedback({"share": share} for share in (0.01, 1.0, 0.1)),
    "peaks": [{"length": length} for length in ("4kB", "32B", "0.3%", 0.1, 0.5, 1.0)],
}
QUICK = {
    "full", "fixed:1.25", "adaptive", "adaptive,weighted=false",
    "adaptive,k=0,robust=true,at_most=2", "random:0.5", "optimal:0.3", "budget:300B",
    "budget:60B,per=client", "budget:2kB,per=run",
    "ou", "ou,cap=true", "ou,mode=paper", "zero", "ignore", "last", "own",
    "float32", "float16", "bfloat16", "quantize:1", "quantize:4", "quantize:2,feedback=true",
    "eden:0.1", "eden:2", "eden:1,feedback=true", "top_k:0.1,feedback=true",
    "sparse_ternary:0.01,feedback=true", "peaks", "peaks:32B", "peaks:0.5",
}  # fmt: skip


def every(registry: dict[str, Callable[..., Any]]) -> list[Any]:
    return [make(**a) for name, make in registry.items() for a in ARGUMENTS.get(name, [{}])]


def cases(parts: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the parts, nightly where they are not in `QUICK`."""
    return [
        pytest.param(part, id=text, marks=() if text in QUICK else pytest.mark.nightly)
        for part in parts
        for text in [spell(part)]
    ]


RULE_PARTS, STAND_IN_PARTS, CODEC_PARTS = every(RULES), every(STAND_INS), every(CODECS)
