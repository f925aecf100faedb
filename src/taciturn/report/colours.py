"""Colours of arms: the same in every picture and on every page.

An arm's colour follows from its policy alone. Only where two arms of a picture would share one does
the later arm take the next that is free, and where a policy is drawn twice, of two folders, the
second line is dashed. Tones are such that they can be read on white and on black.
"""

import zlib
from collections.abc import Sequence

from taciturn.summary import FULL

GREY = "#808080"
# Okabe and Ito's colours, which people who see colours differently can tell apart, and five more.
_PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#8C6BB1", "#A6761D", "#E7505A", "#17A2B8", "#7A9A01",
)  # fmt: skip
_PAPERS = [f"adaptive+{stand_in}" for stand_in in ("ou", "zero", "ignore", "last")]
_KNOWN = [*_PAPERS, "budget", "adaptive+ou,mode=paper"]
DASHES = ("solid", "dash", "dot", "dashdot")


def colours(policies: Sequence[str]) -> dict[str, str]:
    """A colour for each policy; `full`, which all are compared with, is grey."""
    found: dict[str, str] = {}
    # Known ones first: they keep theirs whatever stands beside them.
    for policy in sorted(policies, key=lambda name: name not in _KNOWN):
        wanted = _KNOWN.index(policy) if policy in _KNOWN else zlib.crc32(policy.encode())
        tones = [_PALETTE[(wanted + i) % len(_PALETTE)] for i in range(len(_PALETTE))]
        free = [tone for tone in tones if tone not in found.values()]
        found.setdefault(policy, GREY if policy == FULL else (free or tones)[0])
    return found


def styles(policies: Sequence[str]) -> list[tuple[str, str]]:
    """A colour and a dash for each line; the same policy again is dashed."""
    colour = colours(policies)
    before = [policies[:i].count(policy) for i, policy in enumerate(policies)]
    dashes = [DASHES[count % len(DASHES)] for count in before]
    return [(colour[policy], dash) for policy, dash in zip(policies, dashes, strict=True)]
