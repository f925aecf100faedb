"""The contract that every rule and stand-in of the registries keeps; `parts.py` lists them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parts import CODEC_PARTS, RULE_PARTS, STAND_IN_PARTS, cases

from taciturn.core import server, tally
from taciturn.core.codecs import eden
from taciturn.core.policy import Policy, parse, parse_part, spell
from taciturn.core.rules import ClientStats, adaptive
from taciturn.core.standins import ou
from taciturn.errors import InputError

rules = pytest.mark.parametrize("rule", cases(RULE_PARTS))
stand_ins = pytest.mark.parametrize("stand_in", cases(STAND_IN_PARTS))

SIZE, CLIENTS, ROUNDS = 6, 4, 5
EXAMPLES = [3.0, 1.0, 2.0, 5.0]


def some_tally(xp, updates, norms, config, rule):
    """Of a round in which the third of four clients is silent."""
    n, spoke = xp.asarray(EXAMPLES, dtype=norms.dtype), xp.asarray([True, True, False, True])
    chances = xp.asarray([1.0, 0.5, 0.8, 0.9], dtype=norms.dtype)
    heard = spoke & xp.isfinite(norms)
    spoken = xp.where(heard, n / chances, xp.zeros_like(n)) @ xp.astype(updates, norms.dtype)
    nbytes = xp.asarray(np.array([300, 40, 0, 32], np.int32))
    return tally.of(
        spoken, n, norms, spoke, config, chances if rule.probability else None,
        each=rule.each, nbytes=nbytes if rule.nbytes else None,
    )  # fmt: skip


def learned(rule):
    """A rule's state after a round."""
    norms = np.array([0.4, np.nan, 1.3, 0.9], np.float32)
    updates, config = np.zeros((CLIENTS, SIZE), np.float32), tally.RoundConfig((), 0.5, np.inf)
    heard = some_tally(np, updates, norms, config, rule)
    return rule.learn(rule.init(SIZE, ROUNDS), heard)


@rules
def test_a_rule_says_yes_or_no_and_the_same_in_jax(rule):
    context = rule.broadcast(learned(rule), CLIENTS)
    norms, draws = [0.0, 0.4, 1.3, 9.0], [0.0, 0.499, 0.5, 0.999]
    grid = np.array(list(itertools.product(norms, draws)), np.float32)
    one_by_one = [bool(rule.speaks(ClientStats(m, u), context)) for m, u in grid]
    speaks = jax.vmap(lambda m, u, context: rule.speaks(ClientStats(m, u), context), (0, 0, None))
    lanes = jax.jit(speaks)(*grid.T, jax.tree.map(jnp.float32, context))
    assert lanes.dtype == bool
    assert lanes.tolist() == one_by_one
    if rule.nbytes is not None:
        own = ClientStats(*grid.T, examples=np.arange(16, dtype=np.float32))
        theirs = jax.jit(rule.nbytes)(own, jax.tree.map(jnp.float32, context))
        np.testing.assert_array_equal(rule.nbytes(own, context), theirs)


@rules
def test_a_rule_looks_only_at_what_it_names(rule):
    context = rule.broadcast(rule.init(SIZE, ROUNDS), CLIENTS)
    here, there = ClientStats(0.4, 0.4, 0.4, 1), ClientStats(9.0, 0.9, 9.0, 50)
    for name in set(ClientStats._fields) - set(rule.looks_at):
        other = here._replace(**{name: getattr(there, name)})
        assert rule.speaks(other, context) == rule.speaks(here, context)


def test_a_rule_keeps_its_numbers_in_the_state():
    """One compiled program serves every rule of a structure: only the state may differ."""
    every = itertools.permutations(RULE_PARTS, 2)
    pairs = [pair for pair in every if pair[0].structure == pair[1].structure]
    assert len(pairs) > 10
    for one, other in pairs:
        state = learned(other)
        for m, u in itertools.product([0.4, 1.2, 1.3], [0.1, 0.6]):
            own, context = ClientStats(m, u), other.broadcast(state, CLIENTS)
            assert context == one.broadcast(state, CLIENTS)
            assert one.speaks(own, context) == other.speaks(own, context)


@stand_ins
def test_a_stand_in_begins_with_zero_and_leaves_its_inputs_alone(stand_in):
    state = stand_in.init(np.ones(SIZE, np.float32))
    assert not np.any(stand_in.predict(state))
    mean = np.full(SIZE, 0.5, np.float32)
    state = stand_in.learn(state, mean)
    before = jax.tree.map(np.copy, state)
    stand_in.predict(state)
    stand_in.learn(state, mean)
    same(before, state, 0)
    assert (mean == 0.5).all()


# Whole rounds, in NumPy and in a compiled program.


def same(a, b, tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def forms(record):
    """Records with what kind of array stands where: shape, dtype, and whether that is weak."""
    return jax.tree.map(lambda x: (x.shape, str(x.dtype), getattr(x, "weak_type", False)), record)


def play(policy, xp, dtype):
    """States and infos of a few rounds; somebody is silent and somebody rejected in each, and in
    the third everyone is rejected."""
    rng = np.random.default_rng(7)
    updates = rng.normal(0.1, 0.3, (ROUNDS, CLIENTS, SIZE)).astype(dtype)
    updates[:, :, 0] = 0  # this weight never moves
    norms = rng.uniform(0.1, 2.0, (ROUNDS, CLIENTS)).astype(np.float32)
    norms[:, 1] = norms[2] = np.nan

    def one_round(state, updates, norms):
        config = server.open(policy, state.memory, CLIENTS)
        heard = some_tally(xp, updates, norms, config, policy.rule)
        return server.close(policy, state, heard)

    step = one_round if xp is np else jax.jit(one_round)
    state = server.init(policy, xp.ones(SIZE, dtype=dtype), rounds=ROUNDS)
    numbers = jax.tree.map(lambda leaf: xp.asarray(leaf, dtype="float32"), state.memory.rule)
    results = [(state._replace(memory=state.memory._replace(rule=numbers)), None)]
    for t in range(ROUNDS):
        results.append(step(results[-1][0], xp.asarray(updates[t]), xp.asarray(norms[t])))
    if xp is jnp:
        assert step._cache_size() == 1  # the state that comes out goes in again
    return results


def a_round_is_the_same(policy, dtype="float32", tolerance=1e-5):
    plain, compiled = play(policy, np, dtype), play(policy, jnp, dtype)
    for state, _ in (*plain, *compiled):
        assert forms(state) == forms(compiled[0][0])
    # The paper's fit multiplies rounding errors like everything else.
    same(plain, compiled, 50 * tolerance)
    assert np.isfinite(plain[-1][0].weights).all()


@rules
def test_a_round_under_a_rule_is_the_same_in_numpy_and_jax(rule):
    a_round_is_the_same(Policy(rule))


@stand_ins
def test_a_round_with_a_stand_in_is_the_same_in_numpy_and_jax(stand_in):
    a_round_is_the_same(Policy(parse_part("rule", "fixed:0.5"), stand_in))


def test_weights_in_half_precision_are_too_and_all_else_is_in_float32():
    a_round_is_the_same(parse("adaptive+ou,cap=true"), "float16", 2e-3)


# As text.


def test_every_policy_reads_back_from_its_text():
    parts = (("rule", RULE_PARTS), ("stand-in", STAND_IN_PARTS), ("codec", CODEC_PARTS))
    for kind, some in parts:
        for part in some:
            assert parse_part(kind, spell(part)) == part
    codecs = itertools.cycle(CODEC_PARTS)
    for rule, stand_in in itertools.product(RULE_PARTS, STAND_IN_PARTS):
        try:
            policy = Policy(rule, stand_in, next(codecs))
        except InputError:  # these do not go together, or the codec is for the way down
            continue
        assert parse(str(policy)) == policy
        assert hash(parse(str(policy))) == hash(policy)


def test_whether_a_policy_loses_anything_of_so_many_weights():
    for text, size, loses in (("full+top_k:1", 9, False), ("full+peaks", 999, False),
                              ("full+peaks", 10_000, True), ("budget", 999, True)):  # fmt: skip
        assert parse(text).loses(size) is loses, text


def test_text_gives_what_python_gives():
    policy = Policy(adaptive(0, weighted=False), ou("paper"), eden(0.1), down=eden(1))
    text = " down = eden:1+ adaptive : 0 , weighted = FALSE + ou:paper + eden,bits=0.1"
    assert parse(text) == policy
    assert str(policy) == "adaptive,k=0,weighted=false+ou,mode=paper+eden:0.1+down=eden:1"


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("adaptive,k=1+ou,mode=constrained,cap=false+float32", "adaptive+ou"),
        ("random:0.30000000000000004+ou", "random:0.30000000000000004+ou"),
        ("full+down=eden:1,feedback=true", "full+down=eden:1"),
        ("full+top_k,share=0.1,feedback=true", "full+top_k:0.1,feedback=true"),
        ("full+float32+down=float32", "full"),
        ("full+peaks,length=1%", "full+peaks:1%"),
        ("budget,amount=1.0 %+ignore+peaks", "budget:1%"),
        ("budget+ou+peaks:1kB", "budget+ou+peaks:1kB"),
    ],
)
def test_policies_print_in_their_shortest_form(text, shortest):
    assert str(parse(text)) == shortest
