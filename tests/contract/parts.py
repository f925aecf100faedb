"""All parts of the registries, with arguments; those in `MORE` are for the nightly tests."""

import pytest

from taciturn.core.policy import CODECS, RULES, STAND_INS, parse_part, spell

QUICK = {
    "rule": "full fixed:1.25 adaptive adaptive,weighted=false adaptive,k=0,robust=true,at_most=2 "
            "random:0.5 optimal:0.3 budget:300B budget:60B,per=client budget:2kB,per=run",
    "stand-in": "ou ou,cap=true ou,mode=paper zero ignore last own",
    "codec": "float32 float16 bfloat16 quantize:1 quantize:4 eden:0.1 "
             "eden:2 eden:1,feedback=true top_k:0.1,feedback=true "
             "sparse_ternary:0.01,feedback=true peaks peaks:32B peaks:0.5",
}  # fmt: skip
MORE = {
    "rule": "fixed:0 fixed:inf adaptive,k=0 adaptive,k=-0.3 adaptive,k=0.3,weighted=false "
            "adaptive,robust=true random:0 random:1 optimal:1,floor=0.5 budget budget:1%",
    "stand-in": "ou,mode=paper,cap=true",
    "codec": "quantize:8 quantize:2 eden:0.02 eden:0.5 eden:1 eden:3 eden:4 "
             "eden:0.02,feedback=true eden:0.1,feedback=true eden:2,feedback=true "
             "eden:3,feedback=true eden:4,feedback=true top_k:0.01 top_k:0.1 top_k:1 "
             "top_k:0.01,feedback=true top_k:1,feedback=true sparse_ternary:0.01 "
             "sparse_ternary:0.1 sparse_ternary:1 sparse_ternary:0.1,feedback=true "
             "sparse_ternary:1,feedback=true peaks:0.3% peaks:0.1 peaks:1",
}  # fmt: skip


def every(kind, registry):
    parts = [parse_part(kind, text) for text in f"{QUICK[kind]} {MORE[kind]}".split()]
    assert {part.name for part in parts} == set(registry), f"a {kind} is missing in parts.py"
    return parts


def cases(parts):
    """Parameters of a test: the parts, nightly where they are not in `QUICK`."""
    quick = " ".join(QUICK.values()).split()
    texts = {spell(part): part for part in parts}
    marks = {text: () if text in quick else pytest.mark.nightly for text in texts}
    return [pytest.param(part, id=text, marks=marks[text]) for text, part in texts.items()]


RULE_PARTS = every("rule", RULES)
STAND_IN_PARTS = every("stand-in", STAND_INS)
CODEC_PARTS = every("codec", CODECS)
