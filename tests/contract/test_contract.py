"""The contract that every rule, stand-in and codec of the registries keeps.

A new part is tested here as soon as it is in `RULES`, `STAND_INS` or `CODECS`; give it arguments in
`ARGUMENTS` where it takes any.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import enable_x64

from taciturn.core import client, server, tally
from taciturn.core.policy import CODECS, RULES, STAND_INS, Policy, parse, parse_part, spell
from taciturn.core.rules import Situation
from taciturn.errors import InputError


def least(arguments: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """These, and again with clients that keep what was left out."""
    return [a | more for a in arguments for more in ({}, {"feedback": True})]


ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "fixed": [{"threshold": 0.0}, {"threshold": 1.25}, {"threshold": float("inf")}],
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
    "random": [{"probability": 0.0}, {"probability": 0.5}, {"probability": 1.0}],
    "ou": [{}, {"cap": True}, {"mode": "paper"}, {"mode": "paper", "cap": True}],
    "quantize": least({"bits": bits} for bits in (1, 2, 4, 8)),
    "eden": least({"bits": bits} for bits in (0.02, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0)),
    "top_k": least({"share": share} for share in (0.01, 1.0, 0.1)),
    "sparse_ternary": least({"share": share} for share in (0.01, 1.0, 0.1)),
    "peaks": [{"length": length} for length in ("4kB", "32B", "0.3%", 0.1, 0.5, 1.0)],
}


def every(registry: dict[str, Any]) -> list[Any]:
    return [make(**a) for name, make in registry.items() for a in ARGUMENTS.get(name, [{}])]


def label(value: Any) -> str | None:
    return spell(value) if hasattr(value, "params") else None


RULE_PARTS, STAND_IN_PARTS, CODEC_PARTS = every(RULES), every(STAND_INS), every(CODECS)
rules = pytest.mark.parametrize("rule", RULE_PARTS, ids=label)
stand_ins = pytest.mark.parametrize("stand_in", STAND_IN_PARTS, ids=label)
dtypes = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])

SIZE, CLIENTS, ROUNDS = 6, 4, 5
EXAMPLES = [3.0, 1.0, 2.0, 5.0]
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}


def precise(dtype: str) -> contextlib.AbstractContextManager[Any]:
    """JAX has float64 only where it is asked for."""
    return enable_x64(True) if dtype == "float64" else contextlib.nullcontext()


def wide(dtype: str) -> Any:
    return np.result_type(dtype, np.float32)


def some_updates(dtype: str) -> np.ndarray:
    """(rounds, clients, size); the first weight never moves, the last client hardly does."""
    updates = np.random.default_rng(7).normal(0.1, 0.3, (ROUNDS, CLIENTS, SIZE))
    updates[:, :, 0] = 0
    updates[:, -1] *= 0.1
    return updates.astype(dtype)


def some_tallies(xp: Any, dtype: str) -> list[tally.Tally]:
    """Of a few rounds; somebody is silent, and somebody rejected, in each."""
    opening = tally.Opening(0.5, 0.5, float("inf"))
    nbytes = np.array([300, 40, 0, 32])
    norms = np.random.default_rng(3).uniform(0.1, 2.0, (ROUNDS, CLIENTS)).astype(wide(dtype))
    norms[:, 1] = np.nan
    spoke = np.array([True, True, False, True])
    n = np.array(EXAMPLES, wide(dtype))
    zero = np.zeros(SIZE, wide(dtype))
    return [
        tally.of(
            *(xp.asarray(a) for a in (zero, n, row, spoke)), opening=opening, each=True,
            nbytes=xp.asarray(nbytes),
        )
        for row in norms
    ]  # fmt: skip


def assert_like(got: Any, form: Any, library: type, dtype: Any = None) -> None:
    """The same records all the way down, arrays of one library and dtype, and no weak types."""
    if isinstance(form, tuple):
        assert type(got) is type(form)
        for a, b in zip(got, form, strict=True):
            assert_like(a, b, library, dtype)
        return
    assert np.shape(got) == np.shape(form)
    if isinstance(got, float):  # a number that the part was made with
        return
    allowed = (np.ndarray, np.generic) if library is np.ndarray else library
    assert isinstance(got, allowed)
    if dtype is not None:
        assert got.dtype == dtype


def same(a: Any, b: Any, tolerance: float) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


# Rules.


def begin(rule: Any) -> Any:
    return rule.init(SIZE, ROUNDS)


@rules
@dtypes
def test_a_rule_keeps_form_dtype_and_library(rule: Any, dtype: str) -> None:
    with precise(dtype):
        for xp, library in ((np, np.ndarray), (jnp, jax.Array)):
            state = form = begin(rule)
            for heard in some_tallies(xp, dtype):
                state = rule.learn(state, heard)
                assert_like(state, form, library, wide(dtype))
                context = rule.broadcast(state, CLIENTS)
                assert all(np.shape(number) == () for number in context)
                assert context._fields == rule.broadcast(form, CLIENTS)._fields


@rules
@dtypes
def test_a_rule_learns_the_same_in_jax(rule: Any, dtype: str) -> None:
    with precise(dtype):
        plain = compiled = begin(rule)
        lanes = jax.tree.map(lambda leaf: jnp.full(2, leaf, wide(dtype)), plain)
        learn = jax.jit(rule.learn)
        learn_lanes = jax.jit(jax.vmap(rule.learn, (0, None), axis_size=2))
        for ours, theirs in zip(some_tallies(np, dtype), some_tallies(jnp, dtype), strict=True):
            plain, compiled = rule.learn(plain, ours), learn(compiled, theirs)
            lanes = learn_lanes(lanes, theirs)
            same(plain, compiled, TOLERANCE[dtype])
            same(jax.tree.map(lambda leaf: leaf[1], lanes), compiled, TOLERANCE[dtype])


@rules
def test_a_rule_says_yes_or_no_and_the_same_in_jax(rule: Any) -> None:
    context = rule.broadcast(rule.learn(begin(rule), some_tallies(np, "float32")[0]), CLIENTS)
    grid = np.array(
        list(itertools.product([0.0, 0.4, 1.3, 9.0], [0.0, 0.499, 0.5, 0.999])), np.float32
    )
    one_by_one = [bool(rule.speaks(Situation(m, u), context)) for m, u in grid]
    speaks = jax.vmap(lambda m, u, context: rule.speaks(Situation(m, u), context), (0, 0, None))
    lanes = jax.jit(speaks)(*grid.T, jax.tree.map(jnp.float32, context))
    assert lanes.dtype == bool
    assert lanes.tolist() == one_by_one
    if rule.nbytes is not None:
        own = Situation(*grid.T, examples=np.arange(16, dtype=np.float32))
        theirs = jax.jit(rule.nbytes)(own, jax.tree.map(jnp.float32, context))
        np.testing.assert_array_equal(rule.nbytes(own, context), theirs)


@rules
def test_silence_where_a_threshold_is_broadcast_means_a_norm_of_at_most_that(rule: Any) -> None:
    first = rule.broadcast(begin(rule), CLIENTS)
    assert hasattr(first, "threshold") == (rule.name in ("fixed", "adaptive"))
    if not hasattr(first, "threshold"):
        return
    for threshold in (0.0, 0.7):
        for m in (0.0, 0.69, 0.7, 0.71, 3.0):
            context = first._replace(threshold=threshold)
            assert bool(rule.speaks(Situation(m, 0.5), context)) == (m > threshold)


@rules
def test_a_rule_looks_only_at_what_it_names(rule: Any) -> None:
    context = rule.broadcast(begin(rule), CLIENTS)
    here, there = Situation(0.4, 0.4, 0.4, 1), Situation(9.0, 0.9, 9.0, 50)
    for name in set(Situation._fields) - set(rule.looks_at):
        other = here._replace(**{name: getattr(there, name)})
        assert rule.speaks(other, context) == rule.speaks(here, context)


@pytest.mark.parametrize(
    ("rule", "other"),
    [
        (a, b)
        for a, b in itertools.permutations(RULE_PARTS, 2)
        if a.structure == b.structure and a != b
    ],
    ids=label,
)
def test_a_rule_keeps_its_numbers_in_the_state(rule: Any, other: Any) -> None:
    """One compiled program serves every rule of a structure: only the state may differ."""
    heard = some_tallies(np, "float32")[0]
    borrowed, own = rule.learn(begin(other), heard), other.learn(begin(other), heard)
    assert borrowed == own
    for m, u in itertools.product([0.4, 1.2, 1.3], [0.1, 0.6]):
        context, situation = rule.broadcast(own, CLIENTS), Situation(m, u)
        assert rule.speaks(situation, context) == other.speaks(situation, context)
        if rule.nbytes is not None:
            assert rule.nbytes(situation, context) == other.nbytes(situation, context)


def test_structure_is_all_but_the_floats() -> None:
    assert parse("adaptive,k=0+ou").structure == parse("adaptive,k=2+ou").structure
    assert parse("random:0.1").structure == parse("random:0.9").structure
    assert parse("adaptive+ou").structure != parse("adaptive,weighted=false+ou").structure
    assert parse("adaptive+ou").structure != parse("adaptive+ou,cap=true").structure
    assert parse("adaptive+ou").structure != parse("adaptive+ou,mode=paper").structure
    assert parse("adaptive+zero").structure != parse("adaptive+ignore").structure


# Stand-ins.


@stand_ins
@dtypes
def test_a_stand_in_keeps_form_dtype_and_library(stand_in: Any, dtype: str) -> None:
    with precise(dtype):
        for xp, library in ((np, np.ndarray), (jnp, jax.Array)):
            weights = xp.asarray(np.ones(SIZE, dtype))
            state = form = stand_in.init(weights)
            assert_like(state, form, library, wide(dtype))
            for mean in some_updates(dtype).mean(1, dtype=wide(dtype)):
                state = stand_in.learn(state, xp.asarray(mean))
                assert_like(state, form, library, wide(dtype))
                predicted = stand_in.predict(state)
                if not isinstance(predicted, float):
                    assert_like(predicted, mean, library, wide(dtype))


@stand_ins
@dtypes
def test_a_stand_in_predicts_the_same_in_jax(stand_in: Any, dtype: str) -> None:
    with precise(dtype):
        plain = stand_in.init(np.ones(SIZE, dtype))
        compiled = stand_in.init(jnp.ones(SIZE, dtype))
        lanes = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), compiled)
        learn, predict = jax.jit(stand_in.learn), jax.jit(stand_in.predict)
        learn_lanes = jax.jit(jax.vmap(stand_in.learn, (0, None)))
        predict_lanes = jax.jit(jax.vmap(stand_in.predict))
        for mean in some_updates(dtype).mean(1, dtype=wide(dtype)):
            plain, compiled = stand_in.learn(plain, mean), learn(compiled, jnp.asarray(mean))
            same(plain, compiled, TOLERANCE[dtype])
            expected = np.broadcast_to(stand_in.predict(plain), (SIZE,))
            assert np.isfinite(expected).all()
            same(expected, np.broadcast_to(predict(compiled), (SIZE,)), 100 * TOLERANCE[dtype])
            if lanes:
                lanes = learn_lanes(lanes, jnp.asarray(mean))
                same(np.stack([expected] * 2), predict_lanes(lanes), 100 * TOLERANCE[dtype])


@stand_ins
def test_a_stand_in_is_silent_before_it_has_seen_anything(stand_in: Any) -> None:
    assert not np.any(stand_in.predict(stand_in.init(np.ones(3, np.float32))))


@stand_ins
def test_a_stand_in_leaves_its_inputs_alone(stand_in: Any) -> None:
    state, mean = stand_in.init(np.ones(SIZE, np.float32)), np.full(SIZE, 0.5, np.float32)
    state = stand_in.learn(state, mean)
    before = jax.tree.map(np.copy, state)
    stand_in.predict(state)
    stand_in.learn(state, mean)
    same(before, state, 0)
    assert (mean == 0.5).all()


# Whole rounds: clients one after another in NumPy, a compiled program over lanes in JAX.


def play(policy: Policy, updates: np.ndarray) -> list[Any]:
    """The plain way: messages, one by one."""
    states = [server.init(policy, np.ones(SIZE, updates.dtype), rounds=ROUNDS)]
    infos = []
    for t in range(ROUNDS):
        opening = server.open(policy, states[-1].memory, CLIENTS)
        heard = tally.start(states[-1].weights, policy.rule.each)
        for k in range(CLIENTS):
            trained = states[-1].weights + updates[t, k]
            message = client.respond(
                policy.rule, states[-1].weights, trained, EXAMPLES[k], opening.context, 0.3 * k
            )
            heard = tally.add(heard, message, opening, policy.codec)
        state, info = server.close(policy, states[-1], heard)
        states.append(state)
        infos.append(info)
    return [states, infos]


def play_compiled(policy: Policy, updates: np.ndarray) -> list[Any]:
    """The fast way: who speaks by `vmap`, sums by a product, one compiled program."""

    def one_round(state: Any, updates: Any) -> Any:
        opening = server.open(policy, state.memory, CLIENTS)
        trained = state.weights + updates
        moved = (trained - state.weights).astype(wide(updates.dtype))
        norms = jnp.sqrt(jnp.sum(moved * moved, axis=1))
        uniforms = 0.3 * jnp.arange(CLIENTS).astype(norms.dtype)
        n = jnp.asarray(EXAMPLES, norms.dtype)
        situation, chances = Situation(norms, uniforms, examples=n), jnp.ones_like(norms)
        spoke = policy.rule.speaks(situation, opening.context)
        if policy.rule.probability is not None:
            chances = policy.rule.probability(situation, opening.context)
        spoken = jnp.where(spoke, n / chances, 0) @ moved
        nbytes = policy.rule.nbytes(situation, opening.context) if policy.rule.nbytes else None
        heard = tally.of(
            spoken, n, norms, spoke, opening, chances, each=policy.rule.each, nbytes=nbytes
        )
        return server.close(policy, state, heard)

    numbers = jax.tree.map(lambda leaf: jnp.asarray(leaf, wide(updates.dtype)), begin(policy.rule))
    state = server.init(policy, jnp.ones(SIZE, updates.dtype), rounds=ROUNDS)
    states = [state._replace(memory=state.memory._replace(rule=numbers))]
    infos = []
    compiled = jax.jit(one_round)
    with jax.numpy_rank_promotion("allow"):
        for t in range(ROUNDS):
            state, info = compiled(states[-1], jnp.asarray(updates[t]))
            states.append(state)
            infos.append(info)
    assert compiled._cache_size() == 1  # the state that comes out goes in again
    return [states, infos]


@pytest.mark.parametrize(
    ("policy", "dtype"),
    [(Policy(rule=rule), "float32") for rule in RULE_PARTS]
    + [
        (Policy(parse_part("rule", "fixed:0.5"), stand_in), dtype)
        for stand_in in STAND_IN_PARTS
        for dtype in ("float16", "float32", "float64")
    ],
    ids=str,
)
def test_a_round_is_the_same_in_numpy_and_jax(policy: Policy, dtype: str) -> None:
    updates = some_updates(dtype)
    with precise(dtype):
        plain, infos = play(policy, updates)
        compiled, infos_compiled = play_compiled(policy, updates)
        for state in plain:
            assert_like(state.weights, state.weights, np.ndarray, dtype)
            assert_like(state.memory.stand_in, plain[0].memory.stand_in, np.ndarray, wide(dtype))
        for state in compiled:
            assert_like(state.weights, state.weights, jax.Array, dtype)
            assert_like(state.memory.stand_in, compiled[0].memory.stand_in, jax.Array, wide(dtype))
        # The paper's fit multiplies rounding errors like everything else.
        same(plain, compiled, 50 * TOLERANCE[dtype])
        same(infos, infos_compiled, 50 * TOLERANCE[dtype])
        assert np.isfinite(plain[-1].weights).all()


# As text.


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (kind, part)
        for kind, parts in (
            ("rule", RULE_PARTS),
            ("stand-in", STAND_IN_PARTS),
            ("codec", CODEC_PARTS),
        )
        for part in parts
    ],
    ids=label,
)
def test_a_part_reads_back_from_its_text(kind: str, part: Any) -> None:
    assert parse_part(kind, spell(part)) == part


def test_every_policy_reads_back_from_its_text() -> None:
    for rule, stand_in, codec in itertools.product(RULE_PARTS, STAND_IN_PARTS, CODEC_PARTS):
        try:
            policy = Policy(rule, stand_in, codec)
        except InputError:  # these do not go together, or the codec is for the way down
            assert rule.nbytes or codec.feedback
            continue
        assert parse(str(policy)) == policy
        assert hash(parse(str(policy))) == hash(policy)
