"""Lanes: local training of many clients at a time, on one device.

A lane trains its items one after another. All lanes of a device step together until one has
finished an item; its update is added up (`client_updates.py`), and its next item begins. So there
is no work on padding, and memory grows with lanes and runs, not with cohorts.
"""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from taciturn.sim import draws
from taciturn.sim.client_updates import Collector, Item, RoundInputs, RoundSums, in_lanes, map_lanes
from taciturn.sim.model import Model
from taciturn.tasks.clients import Clients

# What a run can differ in without being another program: fields of its `Settings`.
Numbers = namedtuple("Numbers", "lr clip server_lr lr_decay rounds dropout stragglers prox")
# All lanes' items, (rounds, items), and where a lane's begin and end in them, (rounds, lanes).
Schedule = namedtuple("Schedule", "items begins ends")


class Lanes(NamedTuple):
    """Where the lanes are."""

    pointer: jax.Array  # into the items of all lanes
    step: jax.Array  # of the item they are at
    params: Any  # a pytree: a flat vector would be cut up and put together again in every step
    slots: Any  # of the client's optimiser
    loss: jax.Array  # summed over the steps
    heard: RoundSums


@dataclass(frozen=True)
class LaneTrainer:
    """Trains the lanes of one device in one round; compare `reference.Trainer`."""

    model: Model
    step: Callable[..., Any]  # see `local.make_step`
    transformation: optax.GradientTransformation  # the clients' optimiser
    collector: Collector
    batch: int  # examples in a local step
    schedule: Schedule
    work: RoundInputs
    numbers: Numbers
    clients: Clients

    @property
    def lanes(self) -> int:
        return int(self.schedule.begins.shape[0])

    def train(self) -> RoundSums:
        """What was heard on all devices when all items are trained."""
        work, begins = self.work, self.schedule.begins
        params, slots = self.begin(self.item(begins))
        ends = np.cumsum([layer.shape[1] for layer in jax.eval_shape(self.layers, params)])
        thetas = jnp.split(work.thetas, ends[:-1], axis=1)
        step, loss = jnp.zeros(self.lanes, jnp.int32), jnp.zeros(self.lanes, work.thetas.dtype)
        heard = self.collector.begin(thetas, self.lanes, work)
        last = jax.lax.while_loop(
            lambda state: jnp.any(state.pointer < self.schedule.ends),
            lambda state: self.until_next_end(state, thetas),
            Lanes(begins, step, params, slots, loss, heard),
        )
        return jax.lax.psum(self.collector.end(last.heard, work), "lanes")

    def until_next_end(self, state: Lanes, thetas: list[jax.Array]) -> Lanes:
        """Steps all lanes until one has finished an item, and hears it."""
        item = self.item(state.pointer)
        active = state.pointer < self.schedule.ends
        left = item.steps - state.step
        steps = jnp.min(jnp.where(active, left, jnp.iinfo(jnp.int32).max))
        one = map_lanes(self.lanes, self.local_step)
        carry = state.params, state.slots, state.loss
        params, slots, loss = jax.lax.fori_loop(
            0, steps, lambda i, carry: one(item, state.step + i, *carry), carry
        )
        ended = active & (left == steps)
        pairs = zip(self.layers(params), thetas, strict=True)
        updates = [new - old[item.run] for new, old in pairs]
        heard = self.collector.hear(state.heard, item, ended, updates, loss / item.steps, self.work)
        pointer = state.pointer + ended
        everywhere = self.lanes * jax.lax.psum(1, "lanes")  # a number: all devices have as many
        # Where no lane has a second item, what it trains after its end is ignored.
        if everywhere < len(self.schedule.items):
            new = self.begin(self.item(pointer))
            params, slots = jax.tree.map(partial(in_lanes, ended), new, (params, slots))
        step, loss = jnp.where(ended, 0, state.step + steps), jnp.where(ended, 0.0, loss)
        return Lanes(pointer, step, params, slots, loss, heard)

    def local_step(self, item: Item, step: jax.Array, params: Any, slots: Any, loss: Any) -> Any:
        """One step of one lane."""
        keys = jax.tree.map(lambda k: k[item.seed], self.work.keys)
        in_epoch = -(-item.rows // self.batch)
        epoch, position = step // in_epoch, step % in_epoch * self.batch
        positions = position + jnp.arange(self.batch)
        inside = jnp.minimum(positions, item.rows - 1)
        indices = draws.shuffled(keys, item.slot, epoch, item.rows, inside)
        rows, mask = self.clients.batch(item.client, indices), positions < item.rows
        key, now = draws.dropout_key(keys, item.slot, step), self.numbers
        *new, its_loss = self.step(params, slots, rows, mask, key, now.lr, now.clip, now.prox)
        return *new, loss + its_loss.astype(loss.dtype)

    def item(self, pointer: jax.Array) -> Item:
        """The items that lanes are at; past their end, the last one."""
        who, items = self.work.who, self.schedule.items  # i is client i % cohort of run i // cohort
        item = items[jnp.minimum(pointer, items.shape[0] - 1)]
        run, slot = item // self.collector.cohort, item % self.collector.cohort
        seed = run % self.collector.seeds
        its = (each[seed, slot] for each in (who.clients, who.rows, who.steps))
        return Item(run, seed, slot, *its)

    def begin(self, item: Item) -> tuple[Any, Any]:
        """The weights and the optimiser's state that items begin with."""
        params = map_lanes(self.lanes, self.model.unravel)(self.work.thetas[item.run])
        return params, map_lanes(self.lanes, self.transformation.init)(params)

    def layers(self, params: Any) -> list[jax.Array]:
        """The lanes' weights, (lanes, size); those of a single lane layer by layer.

        On a CPU, where there is one lane, XLA fuses a concatenation into what reads it, which
        then takes longer than several steps of training.
        """
        if self.lanes > 1:
            return [jax.vmap(self.model.ravel)(params)]
        dtype = self.work.thetas.dtype
        return [leaf.reshape(1, -1).astype(dtype) for leaf in jax.tree.leaves(params)]
