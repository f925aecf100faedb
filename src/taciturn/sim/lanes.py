"""Lanes: local training of many clients at a time, on one device.

A lane trains its items one behind another. All lanes of a device step together until
one has finished an item; its update goes into its run's sums, and its next item begins. So there is
no work on padding, and memory grows with lanes and runs, not with cohorts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from taciturn.core import arrays
from taciturn.core.codecs import Codec
from taciturn.core.policy import Policy
from taciturn.core.rules import Rule, Situation
from taciturn.sim import draws
from taciturn.sim.local import Model
from taciturn.tasks.task import Clients


class Numbers(NamedTuple):
    """What a run can differ in without being another program."""

    lr: Any
    clip: Any
    server_lr: Any
    lr_decay: Any = 1.0

    def at(self, round: Any) -> Numbers:
        """Those of a round, counted from 0."""
        return self._replace(lr=self.lr * jnp.asarray(self.lr_decay) ** round)


class Cohorts(NamedTuple):
    """Who is asked, (rounds, seeds, cohort) each."""

    clients: Any
    rows: Any
    examples: Any


class Schedule(NamedTuple):
    """Which items each lane trains in a round, one behind another, see `plan.pack`."""

    items: Any  # (rounds, items)
    begins: Any  # where a lane's items begin and end in them, (rounds, lanes)
    ends: Any


class Work(NamedTuple):
    """What lanes need to know of a round."""

    thetas: jax.Array  # (runs, size), run = arm · seeds + seed
    contexts: tuple[Any, ...]  # a rule's record per arm, (seeds,) each
    uniforms: jax.Array  # (seeds, cohort)
    silence: Any  # (runs, cohort); None where no rule looks at it
    keys: draws.RoundKeys  # (seeds,)
    who: Cohorts  # (seeds, cohort)


class Item(NamedTuple):
    """A client of a cohort of a run, one per lane."""

    item: jax.Array
    run: jax.Array
    seed: jax.Array
    slot: jax.Array
    client: jax.Array
    rows: jax.Array


class Heard(NamedTuple):
    """What comes out of local training."""

    sums: Any  # Σ n·Δ over those who spoke, (runs, size), layer by layer while there is training
    norms: jax.Array  # (runs, cohort)
    said: jax.Array  # who spoke, (runs, cohort)
    chances: Any  # of having spoken, (runs, cohort); None where no rule has any


class Waiting(NamedTuple):
    """Updates that were spoken and are not summed yet: as many slots as there are lanes.

    Codecs work on full slots: an update is encoded twice at the most, however lanes end.
    """

    taken: jax.Array  # how many slots are
    updates: jax.Array  # (lanes, size)
    weight: jax.Array  # (lanes,) each, of the client that spoke
    run: jax.Array
    seed: jax.Array
    client: jax.Array


class Lanes(NamedTuple):
    """Where the lanes are."""

    pointer: jax.Array  # into the items of all lanes
    step: jax.Array  # of the item they are at
    params: Any  # a pytree: a flat vector would be cut up and put together again in every step
    slots: Any  # of the client's optimiser
    loss: jax.Array | None  # summed over the steps; None where no rule looks at it
    heard: Heard
    waiting: Waiting | None  # None where each is summed when it ends


@dataclass(frozen=True)
class LaneTrainer:
    """Trains lanes; compare `reference.Trainer`.

    Attributes:
      model: its two forms.
      step: one local step, see `local.make_step`.
      transformation: the clients' optimiser.
      policies: one per arm.
      seeds, cohort, batch, epochs: of the experiment. Run r is arm r // seeds with seed r % seeds,
        item i is client i % cohort of run i // cohort.
    """

    model: Model
    step: Callable[..., Any]
    transformation: optax.GradientTransformation
    policies: tuple[Policy, ...]
    seeds: int
    cohort: int
    batch: int
    epochs: int

    @property
    def runs(self) -> int:
        return len(self.policies) * self.seeds

    @property
    def chances(self) -> bool:
        """Whether any rule says how likely a client was to speak."""
        return any(rule.probability is not None for rule in self.rules)

    @property
    def lossy(self) -> bool:
        """Whether what the server decodes differs from what a client sent."""
        return any(policy.codec.error for policy in self.policies)

    @property
    def rules(self) -> list[Rule]:
        return [policy.rule for policy in self.policies]

    def looks_at(self, what: str) -> bool:
        """Whether any rule looks at this field of a client's situation."""
        return any(what in rule.looks_at for rule in self.rules)

    def steps(self, rows: Any) -> Any:
        """How many local steps clients with so many rows take."""
        return self.epochs * (-(-rows // self.batch))

    def __call__(self, schedule: Schedule, work: Work, numbers: Numbers, clients: Clients) -> Heard:
        """Local training of this device's lanes, until they have trained all their items."""
        lanes, last = schedule.begins.shape[0], schedule.items.shape[0] - 1
        over_lanes = jax.vmap if lanes > 1 else _single
        dtype = work.thetas.dtype

        def items(pointer: jax.Array) -> Item:
            item = schedule.items[jnp.minimum(pointer, last)]
            run, slot = item // self.cohort, item % self.cohort
            seed = run % self.seeds
            return Item(item, run, seed, slot, who.clients[seed, slot], who.rows[seed, slot])

        def begin(item: Item) -> tuple[Any, Any]:
            params = over_lanes(self.model.unravel)(work.thetas[item.run])
            return params, over_lanes(self.transformation.init)(params)

        def layers(params: Any) -> list[jax.Array]:
            """The lanes' weights, (lanes, size); those of a single lane layer by layer.

            On a CPU, where there is one lane, XLA fuses a concatenation into what reads it, which
            then takes longer than several steps of training.
            """
            if lanes > 1:
                return [jax.vmap(self.model.ravel)(params)]
            return [leaf.reshape(1, -1).astype(dtype) for leaf in jax.tree.leaves(params)]

        def local_step(item: Item, step: jax.Array, params: Any, slots: Any, loss: Any) -> Any:
            """One step of one lane."""
            keys = jax.tree.map(lambda k: k[item.seed], work.keys)
            in_epoch = -(-item.rows // self.batch)
            epoch, position = step // in_epoch, step % in_epoch * self.batch
            positions = position + jnp.arange(self.batch)
            inside = jnp.minimum(positions, item.rows - 1)
            indices = draws.shuffled(keys, item.slot, epoch, item.rows, inside)
            params, slots, its_loss = self.step(
                params,
                slots,
                clients.batch(item.client, indices),
                positions < item.rows,
                draws.dropout_key(keys, item.slot, step),
                numbers.lr,
                numbers.clip,
            )
            return params, slots, None if loss is None else loss + its_loss.astype(dtype)

        def until_next_end(state: Lanes) -> Lanes:
            """Steps all lanes until one has finished an item, and takes its update."""
            item = items(state.pointer)
            active = state.pointer < schedule.ends
            left = self.steps(item.rows) - state.step
            steps = jnp.min(jnp.where(active, left, jnp.iinfo(jnp.int32).max))

            def one(i: jax.Array, carry: Any) -> Any:
                return over_lanes(local_step)(item, state.step + i, *carry)

            carry = (state.params, state.slots, state.loss)
            params, slots, loss = jax.lax.fori_loop(0, steps, one, carry)
            ended = active & (left == steps)
            heard, waiting = self._hear(
                state.heard, state.waiting, item, ended, layers(params), thetas, loss, work
            )
            pointer = state.pointer + ended
            params, slots = jax.tree.map(
                lambda new, old: _where(ended, new, old), begin(items(pointer)), (params, slots)
            )
            step = jnp.where(ended, 0, state.step + steps)
            loss = None if loss is None else jnp.where(ended, 0.0, loss)
            return Lanes(pointer, step, params, slots, loss, heard, waiting)

        who = work.who
        pointer = schedule.begins
        params, slots = begin(items(pointer))
        ends = np.cumsum([layer.shape[1] for layer in jax.eval_shape(layers, params)])
        thetas = jnp.split(work.thetas, ends[:-1], axis=1)
        heard = Heard(
            [jnp.zeros_like(theta) for theta in thetas],
            jnp.zeros((self.runs, self.cohort), dtype),
            jnp.zeros((self.runs, self.cohort), jnp.int32),
            jnp.zeros((self.runs, self.cohort), dtype) if self.chances else None,
        )
        none = jnp.zeros(lanes, jnp.int32)
        loss = jnp.zeros(lanes, dtype) if self.looks_at("loss") else None
        waiting = None
        if lanes > 1 and self.lossy:
            empty = jnp.zeros((lanes, work.thetas.shape[1]), dtype)
            waiting = Waiting(jnp.int32(0), empty, empty[:, 0], none, none, none)
        state = jax.lax.while_loop(
            lambda state: jnp.any(state.pointer < schedule.ends),
            until_next_end,
            Lanes(pointer, none, params, slots, loss, heard, waiting),
        )
        sums = jnp.concatenate(state.heard.sums, axis=1)
        if state.waiting is not None:
            sums = self._sum(sums, state.waiting, work)
        return jax.lax.psum(state.heard._replace(sums=sums), "lanes")

    def _hear(
        self,
        heard: Heard,
        waiting: Waiting | None,
        item: Item,
        ended: jax.Array,
        trained: list[jax.Array],
        thetas: list[jax.Array],
        loss: jax.Array | None,
        work: Work,
    ) -> tuple[Heard, Waiting | None]:
        """Hears the lanes that have ended; compare `client.respond` and `tally.add`."""
        updates = [new - old[item.run] for new, old in zip(trained, thetas, strict=True)]
        norms = jax.vmap(_norm)(updates)
        said, chances = self._decide(item, norms, loss, work)
        row = jnp.where(ended, item.run, self.runs)  # out of bounds, and dropped
        heard = heard._replace(
            norms=heard.norms.at[row, item.slot].set(norms, mode="drop"),
            said=heard.said.at[row, item.slot].set(said.astype(jnp.int32), mode="drop"),
        )
        if chances is not None and heard.chances is not None:
            heard = heard._replace(
                chances=heard.chances.at[row, item.slot].set(chances, mode="drop")
            )
        counts, sums = ended & said, heard.sums
        weight = work.who.examples[item.seed, item.slot].astype(norms.dtype)
        weight = weight if chances is None else weight / chances
        if waiting is not None:
            sums, waiting = self._wait(sums, waiting, item, counts, weight, updates[0], work)
        elif self.lossy:
            add = functools.partial(
                self._add_decoded, item=item, weight=weight, updates=updates, work=work
            )
            sums = jax.lax.cond(counts[0], add, lambda sums: sums, sums)
        else:
            pairs = zip(sums, updates, strict=True)
            sums = [self._add(*pair, counts, item.run, weight) for pair in pairs]
        return heard._replace(sums=sums), waiting

    def _decide(
        self, item: Item, norms: jax.Array, loss: jax.Array | None, work: Work
    ) -> tuple[jax.Array, jax.Array | None]:
        """Who speaks, and how likely it was where a rule says so; compare `client.decide`."""
        situation = Situation(norms, work.uniforms[item.seed, item.slot])
        if loss is not None:
            situation = situation._replace(loss=loss / self.steps(item.rows))
        if work.silence is not None:
            situation = situation._replace(silence=work.silence[item.run, item.slot])
        contexts = [jax.tree.map(lambda c: c[item.seed], context) for context in work.contexts]
        own = (item.run // self.seeds, jnp.arange(len(norms)))
        said = jnp.stack([rule.speaks(situation, context)
                          for rule, context in zip(self.rules, contexts, strict=True)])  # fmt: skip
        said = said[own] & jnp.isfinite(norms)
        if not self.chances:
            return said, None
        every = jnp.ones_like(norms)
        chances = [every if rule.probability is None else rule.probability(situation, context)
                   for rule, context in zip(self.rules, contexts, strict=True)]  # fmt: skip
        return said, jnp.stack(chances)[own]

    def _add(
        self,
        sums: jax.Array,
        updates: jax.Array,
        counts: jax.Array,
        run: jax.Array,
        weight: jax.Array,
    ) -> jax.Array:
        """The runs' sums with n·Δ/p of the clients that count."""
        scaled = _where(counts, weight[:, None] * updates, jnp.zeros_like(updates))
        if len(counts) == 1:
            return sums.at[run[0]].add(scaled[0])
        # A product with a one-hot matrix: a scatter-add would sum in an order of its own each time
        # on a GPU.
        chosen = jax.nn.one_hot(run, self.runs, axis=0, dtype=sums.dtype)
        return sums + jnp.matmul(chosen, scaled, precision="highest")

    def _add_decoded(
        self,
        sums: list[jax.Array],
        item: Item,
        weight: jax.Array,
        updates: list[jax.Array],
        work: Work,
    ) -> list[jax.Array]:
        """The sums with what the server decodes of a single lane's update, layer by layer."""
        key = self._keys(item, work)[0]
        ends = np.cumsum([update.shape[1] for update in updates])[:-1]

        def through(codec: Codec) -> Callable[..., list[jax.Array]]:
            def call(updates: list[jax.Array]) -> list[jax.Array]:
                if not codec.error:
                    return updates
                whole = jax.lax.optimization_barrier(jnp.concatenate(updates, axis=1)[0])
                return jnp.split(_through(codec, whole, key)[None], ends, axis=1)

            return call

        codecs = [through(policy.codec) for policy in self.policies]
        updates = jax.lax.switch(item.run[0] // self.seeds, codecs, updates)
        pairs = zip(sums, updates, strict=True)
        return [self._add(*pair, jnp.array([True]), item.run, weight) for pair in pairs]

    def _wait(
        self,
        sums: list[jax.Array],
        waiting: Waiting,
        item: Item,
        counts: jax.Array,
        weight: jax.Array,
        updates: jax.Array,
        work: Work,
    ) -> tuple[list[jax.Array], Waiting]:
        """Puts the updates that were spoken into free slots; sums first if there are too few."""
        lanes, more = len(counts), jnp.sum(counts, dtype=jnp.int32)

        def empty(sums: jax.Array) -> jax.Array:
            return self._sum(sums, waiting, work)

        full = waiting.taken + more > lanes
        total = jax.lax.cond(full, empty, lambda sums: sums, sums[0])
        first = jnp.where(full, 0, waiting.taken)
        place = jnp.where(counts, first + jnp.cumsum(counts) - 1, lanes)  # out of bounds, dropped

        def put(old: jax.Array, new: jax.Array) -> jax.Array:
            return old.at[place].set(new, mode="drop")

        new = Waiting(
            first + more,
            put(waiting.updates, updates),
            put(waiting.weight, weight),
            *(put(getattr(waiting, name), getattr(item, name)) for name in Waiting._fields[3:]),
        )
        return [total], new

    def _sum(self, sums: jax.Array, waiting: Waiting, work: Work) -> jax.Array:
        """The sums with what the server decodes of the updates that wait."""
        taken = jnp.arange(len(waiting.run)) < waiting.taken
        keys, arm = self._keys(waiting, work), waiting.run // self.seeds
        decoded = waiting.updates
        for codec in {policy.codec.structure: policy.codec for policy in self.policies}.values():
            if not codec.error:
                continue
            own = jnp.array([policy.codec == codec for policy in self.policies])[arm]
            read = jax.lax.cond(
                jnp.any(own & taken),
                jax.vmap(lambda update, key, codec=codec: _through(codec, update, key)),
                lambda updates, keys: updates,
                waiting.updates,
                keys,
            )
            decoded = _where(own, read, decoded)
        return self._add(sums, decoded, taken, waiting.run, waiting.weight)

    def _keys(self, of: Item | Waiting, work: Work) -> jax.Array:
        """The keys of the codecs of these clients, (lanes, 2)."""
        keys = jax.tree.map(lambda k: k[of.seed], work.keys)
        return jax.vmap(draws.codec_key)(keys, of.client)


def _through(codec: Codec, update: jax.Array, key: jax.Array) -> jax.Array:
    """What the server decodes of an update."""
    return codec.decode(codec.encode(update, key), key, update.shape[0])


def _single(function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap` over one lane, without the batch axis that would slow matrix products down."""

    def call(*args: Any) -> Any:
        first = jax.tree.map(lambda a: a[0], args)
        return jax.tree.map(lambda a: jnp.asarray(a)[None], function(*first))

    return call


def _norm(layers: list[jax.Array]) -> jax.Array:
    """That of the vector that the layers make up."""
    norms = [arrays.norm(layer) for layer in layers]
    return norms[0] if len(norms) == 1 else arrays.norm(jnp.stack(norms))


def _where(lanes: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """`new` in the chosen lanes, `old` in the others."""
    return jnp.where(lanes.reshape(-1, *[1] * (jnp.ndim(new) - 1)), new, old)
