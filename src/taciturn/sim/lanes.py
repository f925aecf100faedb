"""Lanes: local training of many clients at a time, on one device.

A lane trains its items one behind another. All lanes of a device step together until
one has finished an item; its update goes into its run's sums, and its next item begins. So there is
no work on padding, and memory grows with lanes and runs, not with cohorts.
"""

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
from taciturn.sim import draws, residuals
from taciturn.sim.local import Model
from taciturn.tasks.task import Clients


class Numbers(NamedTuple):
    """What a run can differ in without being another program."""

    lr: Any
    clip: Any
    server_lr: Any


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
    contexts: jax.Array  # (runs,)
    uniforms: jax.Array  # (seeds, cohort)
    keys: draws.RoundKeys  # (seeds,)
    who: Cohorts  # (seeds, cohort)
    residuals: Any = None  # what clients kept, (keeping, cohort, size)


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
    left: Any  # what was left out of those who spoke, (keeping, cohort, size)


class Waiting(NamedTuple):
    """Updates that were spoken and are not summed yet: as many slots as there are lanes.

    Codecs work on full slots: an update is encoded twice at the most, however lanes end.
    """

    taken: jax.Array  # how many slots are
    updates: jax.Array  # (lanes, size)
    run: jax.Array  # (lanes,) each, of the client that spoke
    seed: jax.Array
    slot: jax.Array
    client: jax.Array

    @property
    def filled(self) -> jax.Array:
        return jnp.arange(len(self.run)) < self.taken


class Lanes(NamedTuple):
    """Where the lanes are."""

    pointer: jax.Array  # into the items of all lanes
    step: jax.Array  # of the item they are at
    params: Any  # a pytree: a flat vector would be cut up and put together again in every step
    slots: Any  # of the client's optimiser
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
    def lossy(self) -> bool:
        """Whether what the server decodes differs from what a client sent."""
        return any(policy.codec.error for policy in self.policies)

    @functools.cached_property
    def keeping(self) -> np.ndarray:
        return residuals.keeping(self.policies, self.seeds)

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

        def local_step(item: Item, step: jax.Array, params: Any, slots: Any) -> Any:
            """One step of one lane."""
            keys = jax.tree.map(lambda k: k[item.seed], work.keys)
            in_epoch = -(-item.rows // self.batch)
            epoch, position = step // in_epoch, step % in_epoch * self.batch
            positions = position + jnp.arange(self.batch)
            inside = jnp.minimum(positions, item.rows - 1)
            indices = draws.shuffled(keys, item.slot, epoch, item.rows, inside)
            return self.step(
                params,
                slots,
                clients.batch(item.client, indices),
                positions < item.rows,
                draws.dropout_key(keys, item.slot, step),
                numbers.lr,
                numbers.clip,
            )

        def until_next_end(state: Lanes) -> Lanes:
            """Steps all lanes until one has finished an item, and takes its update."""
            item = items(state.pointer)
            active = state.pointer < schedule.ends
            left = self.steps(item.rows) - state.step
            steps = jnp.min(jnp.where(active, left, jnp.iinfo(jnp.int32).max))

            def one(i: jax.Array, carry: Any) -> Any:
                return over_lanes(local_step)(item, state.step + i, *carry)

            params, slots = jax.lax.fori_loop(0, steps, one, (state.params, state.slots))
            ended = active & (left == steps)
            heard, waiting = self._hear(
                state.heard, state.waiting, item, ended, layers(params), thetas, work
            )
            pointer = state.pointer + ended
            params, slots = jax.tree.map(
                lambda new, old: _where(ended, new, old), begin(items(pointer)), (params, slots)
            )
            step = jnp.where(ended, 0, state.step + steps)
            return Lanes(pointer, step, params, slots, heard, waiting)

        who = work.who
        pointer = schedule.begins
        params, slots = begin(items(pointer))
        ends = np.cumsum([layer.shape[1] for layer in jax.eval_shape(layers, params)])
        thetas = jnp.split(work.thetas, ends[:-1], axis=1)
        heard = Heard(
            [jnp.zeros_like(theta) for theta in thetas],
            jnp.zeros((self.runs, self.cohort), dtype),
            jnp.zeros((self.runs, self.cohort), jnp.int32),
            jax.tree.map(jnp.zeros_like, work.residuals),
        )
        none = jnp.zeros(lanes, jnp.int32)
        waiting = None
        if lanes > 1 and self.lossy:
            empty = jnp.zeros((lanes, work.thetas.shape[1]), dtype)
            waiting = Waiting(jnp.int32(0), empty, none, none, none, none)
        state = jax.lax.while_loop(
            lambda state: jnp.any(state.pointer < schedule.ends),
            until_next_end,
            Lanes(pointer, none, params, slots, heard, waiting),
        )
        sums, left = jnp.concatenate(state.heard.sums, axis=1), state.heard.left
        if state.waiting is not None:
            sums, rest = self._sum(sums, state.waiting, work)
            left = residuals.keep(left, rest, self.keeping, state.waiting, state.waiting.filled)
        return jax.lax.psum(state.heard._replace(sums=sums, left=left), "lanes")

    def _hear(
        self,
        heard: Heard,
        waiting: Waiting | None,
        item: Item,
        ended: jax.Array,
        trained: list[jax.Array],
        thetas: list[jax.Array],
        work: Work,
    ) -> tuple[Heard, Waiting | None]:
        """Hears the lanes that have ended; compare `client.respond` and `tally.add`."""
        updates = [new - old[item.run] for new, old in zip(trained, thetas, strict=True)]
        norms = jax.vmap(_norm)(updates)
        uniforms = work.uniforms[item.seed, item.slot]
        contexts = work.contexts[item.run]
        rules = [policy.rule for policy in self.policies]
        said = jnp.stack([rule.speaks(norms, uniforms, contexts) for rule in rules])[
            item.run // self.seeds, jnp.arange(len(ended))
        ]
        said = said & jnp.isfinite(norms)
        counts, sums, left = ended & said, heard.sums, heard.left
        if waiting is not None:
            sums, left, waiting = self._wait(sums, left, waiting, item, counts, updates[0], work)
        elif self.lossy:
            add = functools.partial(self._add_decoded, item=item, updates=updates, work=work)
            kept = residuals.kept(work.residuals, self.keeping, item)
            sums, rest = jax.lax.cond(counts[0], add, lambda *same: same, sums, kept)
            left = residuals.keep(left, rest, self.keeping, item, counts)
        else:
            pairs = zip(sums, updates, strict=True)
            sums = [self._add(*pair, counts, item, work) for pair in pairs]
        row = jnp.where(ended, item.run, self.runs)  # out of bounds, and dropped
        heard = Heard(
            sums,
            heard.norms.at[row, item.slot].set(norms, mode="drop"),
            heard.said.at[row, item.slot].set(said.astype(jnp.int32), mode="drop"),
            left,
        )
        return heard, waiting

    def _add(
        self, sums: jax.Array, updates: jax.Array, counts: jax.Array, of: Item | Waiting, work: Work
    ) -> jax.Array:
        """The runs' sums with n·Δ of the clients that count."""
        examples = work.who.examples[of.seed, of.slot].astype(sums.dtype)
        scaled = _where(counts, examples[:, None] * updates, jnp.zeros_like(updates))
        if len(counts) == 1:
            return sums.at[of.run[0]].add(scaled[0])
        # A product with a one-hot matrix: a scatter-add would sum in an order of its own each time
        # on a GPU.
        chosen = jax.nn.one_hot(of.run, self.runs, axis=0, dtype=sums.dtype)
        return sums + jnp.matmul(chosen, scaled, precision="highest")

    def _add_decoded(
        self, sums: list[jax.Array], kept: Any, item: Item, updates: list[jax.Array], work: Work
    ) -> tuple[list[jax.Array], Any]:
        """The sums with what the server decodes of a single lane's update, layer by layer; and what
        is left out of it and of what the client kept."""
        key = self._keys(item, work)[0]
        ends = np.cumsum([update.shape[1] for update in updates])[:-1]

        def through(codec: Codec) -> Callable[..., Any]:
            def call(updates: list[jax.Array], kept: Any) -> Any:
                if not codec.error:
                    return updates, kept
                whole = jax.lax.optimization_barrier(jnp.concatenate(updates, axis=1)[0])
                whole = whole if kept is None else whole + kept[0]
                read = _through(codec, whole, key)
                rest = None if kept is None else (whole - read)[None]
                return jnp.split(read[None], ends, axis=1), rest

            return call

        codecs = [through(policy.codec) for policy in self.policies]
        updates, rest = jax.lax.switch(item.run[0] // self.seeds, codecs, updates, kept)
        pairs = zip(sums, updates, strict=True)
        return [self._add(*pair, jnp.array([True]), item, work) for pair in pairs], rest

    def _wait(
        self,
        sums: list[jax.Array],
        left: Any,
        waiting: Waiting,
        item: Item,
        counts: jax.Array,
        updates: jax.Array,
        work: Work,
    ) -> tuple[list[jax.Array], Any, Waiting]:
        """Puts what is spoken, and was kept, into free slots; sums first if there are too few."""
        lanes, more = len(counts), jnp.sum(counts, dtype=jnp.int32)
        kept = residuals.kept(work.residuals, self.keeping, item)
        empty = functools.partial(self._sum, waiting=waiting, work=work)
        full = waiting.taken + more > lanes
        total, rest = jax.lax.cond(full, empty, lambda sums: (sums, kept), sums[0])
        left = residuals.keep(left, rest, self.keeping, waiting, full & waiting.filled)
        first = jnp.where(full, 0, waiting.taken)
        place = jnp.where(counts, first + jnp.cumsum(counts) - 1, lanes)  # out of bounds, dropped

        def put(old: jax.Array, new: jax.Array) -> jax.Array:
            return old.at[place].set(new, mode="drop")

        new = Waiting(
            first + more,
            put(waiting.updates, updates if kept is None else updates + kept),
            *(put(getattr(waiting, name), getattr(item, name)) for name in Waiting._fields[2:]),
        )
        return [total], left, new

    def _sum(self, sums: jax.Array, waiting: Waiting, work: Work) -> tuple[jax.Array, Any]:
        """The sums with what the server decodes of the updates that wait; and what is left out."""
        taken = waiting.filled
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
        rest = None if work.residuals is None else waiting.updates - decoded
        return self._add(sums, decoded, taken, waiting, work), rest

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
