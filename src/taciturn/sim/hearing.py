"""Hearing the clients of a round on one device: who speaks, what is decoded, what is summed.

An update that was spoken goes through its policy's codec before it is added to its run's sums. With
more than one lane and a codec that loses something, spoken updates wait in as many slots as there
are lanes and go through together: none is encoded more than twice, and memory does not grow with
cohorts.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core import arrays
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

    sums: Any  # Σ n·Δ/p over those who spoke, (runs, size), layer by layer while there is training
    norms: jax.Array  # (runs, cohort)
    said: jax.Array  # who spoke, (runs, cohort)
    chances: Any  # of having spoken, (runs, cohort); None where no rule has any
    nbytes: Any  # of their codes, (runs, cohort); None where no rule gives each its own number
    left: Any  # what codecs left out of those who spoke, like `Work.residuals`; 0 for the silent
    last: Any  # what was decoded of them, (`Hearing.repeating`, cohort, size); None where no run is
    waiting: Waiting | None  # None where each update is summed when it ends, and in the end


@dataclass(frozen=True)
class Hearing:
    """Hears clients; compare `client.respond`, `messages.through` and `tally.add`.

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
        table = jnp.zeros((self.runs, self.cohort), work.thetas.dtype)
        whole = table.astype(jnp.int32)
        waiting = None
        if lanes > 1 and self.lossy:
            empty = jnp.zeros((lanes, work.thetas.shape[1]), work.thetas.dtype)
            none = jnp.zeros(lanes, jnp.int32)
            waiting = Waiting(jnp.int32(0), empty, empty[:, 0], none, none, none, none, none)
        return Heard(
            [jnp.zeros_like(theta) for theta in thetas],
            table, whole, table if self.draws else None, whole if self.measures else None,
            jax.tree.map(jnp.zeros_like, work.residuals),
            tables.empty(self.repeating, self.cohort, work.thetas.shape[1], work.thetas.dtype),
            waiting,
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
        said, chances, nbytes = self._decide(item, situation, work)
        row = jnp.where(ended, item.run, self.runs)  # out of bounds, and dropped

        def note(table: Any, values: Any) -> Any:
            return None if values is None else table.at[row, item.slot].set(values, mode="drop")

        heard = heard._replace(
            norms=note(heard.norms, norms),
            said=note(heard.said, said.astype(jnp.int32)),
            chances=note(heard.chances, chances),
            nbytes=note(heard.nbytes, nbytes),
        )
        weight = weight if chances is None else weight / chances
        nbytes = jnp.zeros_like(item.run) if nbytes is None else nbytes
        return self._take(heard, item, ended & said, weight, nbytes, updates, work)

    def end(self, heard: Heard, work: Work) -> Heard:
        """What was heard, nothing waiting any more."""
        sums, left, last = jnp.concatenate(heard.sums, axis=1), heard.left, heard.last
        if heard.waiting is not None:
            sums, left, last = self._empty(sums, left, last, heard.waiting, work)
        return heard._replace(sums=sums, left=left, last=last, waiting=None)

    def _decide(self, item: Item, situation: Situation, work: Work) -> tuple[jax.Array, Any, Any]:
        """Who speaks, how likely it was and in how many bytes, where rules say so; compare
        `client.decide`."""
        norms = situation.norm
        own = (item.run // self.seeds, jnp.arange(len(norms)))
        none = jnp.zeros_like(item.run)
        said, chances, lengths = [], [], []
        for policy, context in zip(self.policies, work.contexts, strict=True):
            rule, of_any = policy.rule, policy.codec.lengths
            told = jax.tree.map(lambda number: number[item.seed], context)
            # A rule may say the same of all, with a plain number; bytes are whole.
            said.append(jnp.broadcast_to(rule.speaks(situation, told), norms.shape))
            chance = 1.0 if rule.probability is None else rule.probability(situation, told)
            chances.append(jnp.full_like(norms, chance))
            wanted = jnp.full_like(none, 0 if rule.nbytes is None else rule.nbytes(situation, told))
            lengths.append(wanted if of_any is None else of_any.fit(self.size, wanted))
        speaks = jnp.stack(said)[own] & jnp.isfinite(norms)
        return (
            speaks,
            jnp.stack(chances)[own] if self.draws else None,
            jnp.stack(lengths)[own] if self.measures else None,
        )

    def _take(
        self, heard: Heard, item: Item, counts: jax.Array, weight: jax.Array, nbytes: jax.Array,
        updates: list[jax.Array], work: Work,
    ) -> Heard:  # fmt: skip
        """Takes the updates that were spoken: to be summed now, or to wait."""
        if heard.waiting is not None:
            return self._wait(heard, heard.waiting, item, counts, weight, nbytes, updates[0], work)
        if not self.lossy:
            pairs = zip(heard.sums, updates, strict=True)
            sums = [self._add(*pair, counts, item.run, weight) for pair in pairs]
            return heard._replace(
                sums=sums, last=self._keep_last(heard.last, updates, item, counts)
            )
        add = functools.partial(
            self._add_decoded, item=item, weight=weight, nbytes=nbytes, updates=updates, work=work
        )
        kept = tables.kept(work.residuals, self.keeping, item)
        sums, rest, read = jax.lax.cond(
            counts[0], add, lambda sums, kept: (sums, kept, updates), heard.sums, kept
        )
        left = tables.keep(heard.left, rest, self.keeping, item, counts)
        last = self._keep_last(heard.last, read, item, counts)
        return heard._replace(sums=sums, left=left, last=last)

    def _keep_last(self, last: Any, read: list[jax.Array], item: Item, counts: jax.Array) -> Any:
        """What was decoded, with these updates, layer by layer, of the lanes that count."""
        if last is None:
            return None
        return tables.keep(last, jnp.concatenate(read, axis=1), self.repeating, item, counts)

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

    def _add_decoded(
        self, sums: list[jax.Array], kept: Any, item: Item, weight: jax.Array, nbytes: jax.Array,
        updates: list[jax.Array], work: Work,
    ) -> tuple[list[jax.Array], Any, list[jax.Array]]:  # fmt: skip
        """The sums with what the server decodes of a single lane's update, layer by layer.

        Returns:
          These, what was left out of the update and of what the client had kept, if anything, and
          what was decoded.
        """
        key = self._keys(item, work)[0]
        ends = np.cumsum([update.shape[1] for update in updates])[:-1]

        def through(policy: Policy) -> Callable[..., Any]:
            def call(updates: list[jax.Array], kept: Any) -> Any:
                if not policy.loses(self.size):
                    return updates, kept
                whole = jax.lax.optimization_barrier(jnp.concatenate(updates, axis=1)[0])
                if kept is not None:
                    whole = whole + kept[0]
                read = _through(policy, whole, key, nbytes[0])
                rest = None if kept is None else (whole - read)[None]
                return jnp.split(read[None], ends, axis=1), rest

            return call

        codecs = [through(policy) for policy in self.policies]
        updates, rest = jax.lax.switch(item.run[0] // self.seeds, codecs, updates, kept)
        pairs = zip(sums, updates, strict=True)
        sums = [self._add(*pair, jnp.array([True]), item.run, weight) for pair in pairs]
        return sums, rest, updates

    def _wait(
        self, heard: Heard, waiting: Waiting, item: Item, counts: jax.Array, weight: jax.Array,
        nbytes: jax.Array, updates: jax.Array, work: Work,
    ) -> Heard:  # fmt: skip
        """Puts what was spoken into free slots, with what clients had kept; empties them first if
        there are too few."""
        lanes, more = len(counts), jnp.sum(counts, dtype=jnp.int32)
        crowded = waiting.taken + more > lanes
        empty = functools.partial(self._empty, waiting=waiting, work=work)
        total, left, last = jax.lax.cond(
            crowded, empty, lambda *same: same, heard.sums[0], heard.left, heard.last
        )
        first = jnp.where(crowded, 0, waiting.taken)
        place = jnp.where(counts, first + jnp.cumsum(counts) - 1, lanes)  # out of bounds, dropped
        kept = tables.kept(work.residuals, self.keeping, item)
        spoken = {"updates": updates if kept is None else updates + kept, "weight": weight,
                  "nbytes": nbytes}  # fmt: skip
        spoken |= {name: getattr(item, name) for name in ("run", "seed", "slot", "client")}
        put = {name: getattr(waiting, name).at[place].set(new, mode="drop")
               for name, new in spoken.items()}  # fmt: skip
        waiting = Waiting(first + more, **put)
        return heard._replace(sums=[total], left=left, last=last, waiting=waiting)

    def _empty(
        self, sums: jax.Array, left: Any, last: Any, waiting: Waiting, work: Work
    ) -> tuple[jax.Array, Any, Any]:
        """The sums with what the server decodes of the updates that wait, what that leaves out
        with the rest of it, and what was decoded."""
        taken, keys, arm = waiting.full, self._keys(waiting, work), waiting.run // self.seeds
        decoded = waiting.updates
        for policy, arms in self.codecs:
            own = jnp.asarray(arms)[arm]
            read = jax.lax.cond(
                jnp.any(own & taken),
                jax.vmap(functools.partial(_through, policy)),
                lambda updates, keys, nbytes: updates,
                waiting.updates,
                keys,
                waiting.nbytes,
            )
            decoded = in_lanes(own, read, decoded)
        if left is not None:
            rest = waiting.updates - decoded
            left = tables.keep(left, rest, self.keeping, waiting, taken)
        if last is not None:
            last = tables.keep(last, decoded, self.repeating, waiting, taken)
        return self._add(sums, decoded, taken, waiting.run, waiting.weight), left, last

    def _keys(self, of: Item | Waiting, work: Work) -> jax.Array:
        """The keys of the codecs of these clients, (lanes, 2)."""
        keys = jax.tree.map(lambda k: k[of.seed], work.keys)
        return jax.vmap(draws.codec_key)(keys, of.client)


def _through(policy: Policy, update: jax.Array, key: jax.Array, nbytes: jax.Array) -> jax.Array:
    """What the server decodes of an update, in its precision."""
    codec, size = policy.codec, update.shape[0]
    if codec.lengths is not None:
        own = codec.nbytes(size) if policy.rule.nbytes is None else nbytes
        read = codec.lengths.through(update, key, own)
    else:
        read = codec.decode(codec.encode(update, key), key, size)
    return read.astype(update.dtype)


def _norm(layers: list[jax.Array]) -> jax.Array:
    """That of the vector that the layers make up."""
    norms = [arrays.norm(layer) for layer in layers]
    return norms[0] if len(norms) == 1 else arrays.norm(jnp.stack(norms))


def in_lanes(lanes: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """`new` in the chosen lanes, `old` in the others."""
    return jnp.where(lanes.reshape(-1, *[1] * (jnp.ndim(new) - 1)), new, old)
