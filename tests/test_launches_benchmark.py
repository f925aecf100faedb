"""What a round launches on a GPU: the counting."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
%fused (p: f32[2]) -> f32[2] {
  ROOT %add = f32[2]{0} add(%p, %p)
}

%block (b: (s32[], f32[2])) -> (s32[], f32[2]) {
  %b = (s32[], f32[2]{0}) parameter(0)
  %f = f32[2]{0} fusion(%b), kind=kLoop, calls=%fused
  ROOT %out = (s32[], f32[2]{0}) tuple(%b, %f)
}

%step (s: (s32[], f32[2])) -> (s32[], f32[2]) {
  %w = (s32[], f32[2]{0}) while(%s), body=%block, backend_config={"known_trip_count":{"n":"4"}}
  ROOT %call = (f32[2]{0}, s8[4]{0}) custom-call(%w), custom_call_target="gemm"
}

%end (e: (s32[], f32[2])) -> (s32[], f32[2]) {
  %c = f32[2]{0} copy(%e)
  ROOT %w = (s32[], f32[2]{0}) while(%c), condition=%go, body=%step
}

%round (r: (s32[], f32[2])) -> (s32[], f32[2]) {
  %f.1 = (f32[2]{0}, (s32[], f32[2]{0})) fusion(%r), kind=kLoop, calls=%fused
  %f.2 = f32[2]{0} fusion(%f.1), kind=kLoop, calls=%fused
  %g = s32[] get-tuple-element(%r), index=0
  ROOT %w = (s32[], f32[2]{0}) while(%f.2), condition=%go, body=%end
}

ENTRY %main (a: f32[2]) -> f32[2] {
  ROOT %w = (s32[], f32[2]{0}) while(%a), condition=%go, body=%round
}
"""


@pytest.fixture(scope="module")
def launches():
    spec = importlib.util.spec_from_file_location("launches", ROOT / "benchmarks" / "launches.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_loops_are_told_apart_and_those_inside_a_step_count_as_often_as_they_turn(launches):
    assert launches.count(PROGRAM) == {"round": 2, "end": 1, "step": 1 + 4}
