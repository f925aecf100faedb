"""Hearing the clients of a round on one device: who speaks, what is decoded, what is summed.

An update that was spoken goes through its policy's codec before it is added to its run's sums.
Where a codec loses something, spoken updates wait in as many slots as there are lanes and are coded
together: none is coded more than twice, and memory does not grow with cohorts.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core import arrays, client, tally
from taciturn.core.fingerprints import fingerprint
from taciturn.core.policy import Policy
from taciturn.core.rules import Rule, Situation
from taciturn.sim import draws, tables


class Cohorts(NamedTuple):
    """Who is asked, (rounds, seeds, cohort) each."""

    clients: Any
    rows: Any
    examples: Any
    steps: Any  # local ones


class Work(NamedTuple):
    """What lanes need to know of a round."""

    thetas: jax.Array  # (runs, size), run = arm · seeds + seed
    contexts: tuple[Any, ...]  # a rule's record per arm, (seeds,) each
    uniforms: jax.Array  # (seeds, cohort)
    keys: draws.RoundKeys  # (seeds,)
    who: Cohorts  # (seeds, cohort)
    silence: Any  # (runs, cohort); None where no rule looks at it
    residuals: Any  # what clients kept, (`Hearing.keeping`, cohort, size); None where nothing is


class Item(NamedTuple):
    """A client of a cohort of a run, one per lane."""

    item: jax.Array
    run: jax.Array
    seed: jax.Array
    slot: jax.Array
    client: jax.Array
    rows: jax.Array
    steps: jax.Array


class Waiting(NamedTuple):
    """Updates that were spoken and are not summed yet: as many slots as there are lanes."""

    taken: jax.Array  # how many slots are
    updates: jax.Array  # (lanes, size), with what the clients had kept
    weight: jax.Array  # (lanes,) each, of the client that spoke
    run: jax.Array
    seed: jax.Array
    slot: jax.Array
    client: jax.Array
    nbytes: jax.Array

    @property
    def full(self) -> jax.Array:
        """Which slots are taken, (lanes,)."""
        return jnp.arange(len(self.run)) < self.taken


class Heard(NamedTuple):
    """What comes out of a round."""

    # Σ n·Δ/p over those who spoke, (runs, size); layer by layer while nothing waits
    sums: Any
    norms: jax.Array  # (runs, cohort)
    said: jax.Array  # who spoke, (runs, cohort)
    chances: Any  # of having spoken, (runs, cohort); None where no rule has any
    nbytes: Any  # of their codes, (runs, cohort); None where no rule gives each its own number
    left: Any  # what codecs left out of those who spoke, like `Work.residuals`; 0 for the silent
    last: Any  # what was decoded of them, (`Hearing.repeating`, cohort, size); None where no run is
    waiting: Waiting | None  # None where no codec loses anything, and in the end


@dataclass(frozen=True)
class Hearing:
    """Hears clients; compare `client.respond`, `client.through` and `tally.add`.

    Attributes:
      policies: one per arm.
      seeds, cohort: of the experiment. Run r is arm r // seeds with seed r % seeds.
      size: how many weights the model has.
    """

    policies: tuple[Policy, ...]
    seeds: int
    cohort: int
    size: int

    @property
    def runs(self) -> int:
        return len(self.policies) * self.seeds

    @property
    def rules(self) -> list[Rule]:
        return [policy.rule for policy in self.policies]

    def looks_at(self, what: str) -> bool:
        """Whether any rule looks at this field of a client's situation."""
        return any(what in rule.looks_at for rule in self.rules)

    @property
    def draws(self) -> bool:
        """Whether any rule says how likely a client was to speak."""
        return any(rule.probability is not None for rule in self.rules)

    @property
    def measures(self) -> bool:
        """Whether any rule gives each client a number of bytes."""
        return any(rule.nbytes is not None for rule in self.rules)

    @property
    def lossy(self) -> bool:
        """Whether what the server decodes differs from what a client sent."""
        return any(policy.loses(self.size) for policy in self.policies)

    @functools.cached_property
    def codecs(self) -> list[tuple[Policy, np.ndarray]]:
        """A policy for each lossy codec that does something else, and which arms have that."""
        prints = [
            (fingerprint(policy.codec), policy.rule.nbytes is None) for policy in self.policies
        ]
        first = [prints.index(one) for one in prints]
        return [
            (self.policies[arm], np.array(first) == arm)
            for arm in sorted(set(first))
            if self.policies[arm].loses(self.size)
        ]

    @functools.cached_property
    def keeping(self) -> np.ndarray:
        """The runs whose clients keep what their codec left out."""
        return tables.keeping(self.policies, self.seeds, self.size)

    @functools.cached_property
    def repeating(self) -> np.ndarray:
        """The runs whose silent clients are stood in for by what they said last."""
        return tables.repeating(self.policies, self.seeds)

    def begin(self, thetas: list[jax.Array], lanes: int, work: Work) -> Heard:
        """Nobody is heard yet; `thetas` are the runs' weights, layer by layer."""
        dtype, size = work.thetas.dtype, work.thetas.shape[1]
        table = jnp.zeros((self.runs, self.cohort), dtype)
        whole = table.astype(jnp.int32)
        sums, waiting = [jnp.zeros_like(theta) for theta in thetas], None
        if self.lossy:
            sums, empty = [jnp.zeros((self.runs, size), dtype)], jnp.zeros((lanes, size), dtype)
            none = jnp.zeros(lanes, jnp.int32)
            waiting = Waiting(jnp.int32(0), empty, empty[:, 0], none, none, none, none, none)
        return Heard(
            sums, table, whole, table if self.draws else None, whole if self.measures else None,
            jax.tree.map(jnp.zeros_like, work.residuals),
            tables.empty(self.repeating, self.cohort, size, dtype), waiting,
        )  # fmt: skip

    def hear(
        self, heard: Heard, item: Item, ended: jax.Array, updates: list[jax.Array], loss: Any,
        work: Work,
    ) -> Heard:  # fmt: skip
        """Hears the lanes that have ended.

        Args:
          heard: what was heard so far.
          item: the client of each lane.
          ended: which lanes have ended.
          updates: Δ of all lanes, layer by layer, (lanes, …) each.
          loss: their mean training loss; None where no rule looks at it.
          work: the round.
        """
        norms = jax.vmap(_norm)(updates)
        weight = work.who.examples[item.seed, item.slot].astype(norms.dtype)
        situation = Situation(norms, work.uniforms[item.seed, item.slot], examples=weight)
        if loss is not None:
            situation = situation._replace(loss=loss)
        if work.silence is not None:
            situation = situation._replace(silence=work.silence[item.run, item.slot])
        decision = self._decide(item, situation, work)
        row = jnp.where(ended, item.run, self.runs)  # out of bounds, and dropped

        def note(table: Any, values: Any) -> Any:
            return None if table is None else table.at[row, item.slot].set(values, mode="drop")

        heard = heard._replace(
            norms=note(heard.norms, norms),
            said=note(heard.said, decision.speaks.astype(jnp.int32)),
            chances=note(heard.chances, decision.probability),
            nbytes=note(heard.nbytes, decision.nbytes),
        )
        spoke, weight = ended & decision.speaks, weight / decision.probability
        if heard.waiting is None:
            pairs = zip(heard.sums, updates, strict=True)
            sums = [self._add(*pair, spoke, item.run, weight) for pair in pairs]
            last = heard.last
            if last is not None:
                whole = jnp.concatenate(updates, axis=1)
                last = tables.keep(last, whole, self.repeating, item, spoke)
            return heard._replace(sums=sums, last=last)
        # XLA would put together what it needs of the layers again and again.
        whole = jax.lax.optimization_barrier(jnp.concatenate(updates, axis=1))
        return self._wait(heard, heard.waiting, item, spoke, weight, decision.nbytes, whole, work)

    def end(self, heard: Heard, work: Work) -> Heard:
        """What was heard, nothing waiting any more."""
        if heard.waiting is not None:
            heard = self._empty(heard, work)
        return heard._replace(sums=jnp.concatenate(heard.sums, axis=1), waiting=None)

    def _decide(self, item: Item, situation: Situation, work: Work) -> client.Decision:
        """What the client of each lane does under the rule of its arm."""
        lanes, arm = jnp.arange(len(item.run)), item.run // self.seeds
        decisions = []
        for policy, context in zip(self.policies, work.contexts, strict=True):
            told = jax.tree.map(lambda number: number[item.seed], context)
            decision = client.decide(policy.rule, situation, told)
            if policy.codec.lengths is not None:
                fitting = policy.codec.lengths.fit(self.size, decision.nbytes)
                decision = decision._replace(nbytes=fitting)
            decisions.append(jax.tree.map(lambda x: jnp.broadcast_to(x, lanes.shape), decision))
        return jax.tree.map(lambda *arms: jnp.stack(arms)[arm, lanes], *decisions)

    def _add(
        self, sums: jax.Array, updates: jax.Array, counts: jax.Array, run: jax.Array,
        weight: jax.Array,
    ) -> jax.Array:  # fmt: skip
        """The runs' sums with n·Δ/p of the clients that count."""
        scaled = in_lanes(counts, weight[:, None] * updates, jnp.zeros_like(updates))
        if len(counts) == 1:
            return sums.at[run[0]].add(scaled[0])
        # A product with a one-hot matrix: a scatter-add would sum in an order of its own each time
        # on a GPU.
        chosen = jax.nn.one_hot(run, self.runs, axis=0, dtype=sums.dtype)
        return sums + jnp.matmul(chosen, scaled, precision="highest")

    def _wait(
        self, heard: Heard, waiting: Waiting, item: Item, spoke: jax.Array, weight: jax.Array,
        nbytes: jax.Array, updates: jax.Array, work: Work,
    ) -> Heard:  # fmt: skip
        """Puts what was spoken into free slots, with what clients had kept; empties them first if
        there are too few."""
        lanes, more = len(spoke), jnp.sum(spoke, dtype=jnp.int32)
        crowded = waiting.taken + more > lanes
        heard = jax.lax.cond(
            crowded, lambda heard: self._empty(heard, work), lambda heard: heard, heard
        )
        first = jnp.where(crowded, 0, waiting.taken)
        place = jnp.where(spoke, first + jnp.cumsum(spoke) - 1, lanes)  # out of bounds, dropped
        kept = tables.kept(work.residuals, self.keeping, item)
        new = {"updates": updates if kept is None else updates + kept, "weight": weight,
               "nbytes": nbytes}  # fmt: skip
        new |= {name: getattr(item, name) for name in ("run", "seed", "slot", "client")}
        put = {name: getattr(waiting, name).at[place].set(value, mode="drop")
               for name, value in new.items()}  # fmt: skip
        return heard._replace(waiting=Waiting(first + more, **put))

    def _empty(self, heard: Heard, work: Work) -> Heard:
        """The sums with what the server decodes of the updates that wait, what codecs left out of
        them, and what was decoded; one that cannot have been decoded from its norm is rejected."""
        waiting = heard.waiting
        assert waiting is not None
        taken, arm = waiting.full, waiting.run // self.seeds
        keys = jax.tree.map(lambda k: k[waiting.seed], work.keys)
        keys = jax.vmap(draws.codec_key)(keys, waiting.client)
        decoded, fits = waiting.updates, taken
        for policy, arms in self.codecs:
            own = jnp.asarray(arms)[arm] & taken
            read, right = jax.lax.cond(
                jnp.any(own),
                over_lanes(len(taken), functools.partial(_through, policy)),
                lambda updates, keys, nbytes: (updates, taken),
                waiting.updates, keys, waiting.nbytes,
            )  # fmt: skip
            decoded, fits = in_lanes(own, read, decoded), jnp.where(own, right, fits)
        left, last = heard.left, heard.last
        if left is not None:
            left = tables.keep(left, waiting.updates - decoded, self.keeping, waiting, taken)
        if last is not None:
            last = tables.keep(last, decoded, self.repeating, waiting, fits)
        wrong = jnp.where(taken & ~fits, waiting.run, self.runs)  # out of bounds: dropped
        norms = heard.norms.at[wrong, waiting.slot].set(jnp.nan, mode="drop")
        decoded = in_lanes(fits, decoded, jnp.zeros_like(decoded))
        total = self._add(heard.sums[0], decoded, fits, waiting.run, waiting.weight)
        return heard._replace(sums=[total], norms=norms, left=left, last=last)


def _through(
    policy: Policy, update: jax.Array, key: jax.Array, nbytes: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """What the server decodes of an update, in its precision, and whether its norm fits."""
    codec, size = policy.codec, update.shape[0]
    if codec.lengths is not None:
        own = codec.nbytes(size) if policy.rule.nbytes is None else nbytes
        read = codec.lengths.through(update, key, own)
    else:
        read = codec.decode(codec.encode(update, key), key, size)
    read = read.astype(update.dtype)
    norm = arrays.norm(read)
    if policy.rule.nbytes is not None:  # what range it has depends on a number that is traced
        return read, jnp.isfinite(norm)
    return read, tally.fits(codec, arrays.norm(update), norm, size)


def _norm(layers: list[jax.Array]) -> jax.Array:
    """That of the vector that the layers make up."""
    norms = [arrays.norm(layer) for layer in layers]
    return norms[0] if len(norms) == 1 else arrays.norm(jnp.stack(norms))


def in_lanes(lanes: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """`new` in the chosen lanes, `old` in the others."""
    return jnp.where(lanes.reshape(-1, *[1] * (jnp.ndim(new) - 1)), new, old)


def over_lanes(lanes: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap`; over one lane without the batch axis that would slow matrix products down."""
    if lanes > 1:
        return jax.vmap(function)

    def call(*args: Any) -> Any:
        first = jax.tree.map(lambda a: a[0], args)
        return jax.tree.map(lambda a: jnp.asarray(a)[None], function(*first))

    return call
