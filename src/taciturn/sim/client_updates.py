"""What becomes of updates on one device: who speaks, what is decoded, what is summed.

A spoken update goes through its policy's codec before it is added to the sums of its run. Where a
codec loses something, updates wait in slots, one per lane, and are coded together when the slots
are full: none is coded more than twice, and memory does not grow with cohorts.
"""

from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core import arrays, client, tally
from taciturn.core.fingerprints import fingerprint
from taciturn.core.policy import Policy
from taciturn.core.rules import ClientStats
from taciturn.sim import draws

# Who is asked, (rounds, seeds, cohort) each: clients, how many rows of data they have, what they
# weigh in the mean (0 where they never answer), and how many local steps they take.
Cohorts = namedtuple("Cohorts", "clients rows examples steps")
# A client of a cohort of a run, one per lane: which run, which of the seeds, which place in the
# cohort, which client, and its rows and local steps.
Item = namedtuple("Item", "run seed slot client rows steps")


class RoundInputs(NamedTuple):
    """What lanes need to know of a round. Run r is arm r // seeds with seed r % seeds."""

    thetas: jax.Array  # (runs, size)
    contexts: tuple[Any, ...]  # a rule's record per arm, (seeds,) each
    uniforms: jax.Array  # (seeds, cohort)
    keys: draws.RoundKeys  # (seeds,)
    who: Cohorts  # (seeds, cohort)
    silence: Any  # how many times running, (runs, cohort); None where no rule looks at it
    residuals: Any  # what clients kept, a part of the table `Collector.keeping`


class Spoken(NamedTuple):
    """Updates, one per lane or slot."""

    item: Item  # whose they are
    updates: Any  # (lanes, size)
    weight: jax.Array  # n/p
    nbytes: jax.Array  # of the code, where the rule says so


class RoundSums(NamedTuple):
    """What comes out of a round."""

    # Σ n·Δ/p over those who spoke, (runs, size); layer by layer while nothing waits
    sums: Any
    norms: jax.Array  # (runs, cohort)
    said: jax.Array  # who spoke, (runs, cohort)
    chances: jax.Array  # of having spoken, (runs, cohort)
    nbytes: jax.Array  # of their codes where the rule says so, (runs, cohort)
    left: Any  # what codecs left out, like `RoundInputs.residuals`; 0 of the silent
    last: Any  # what was decoded, a part of the table `Collector.repeating`
    taken: Any  # how many slots are; None where no codec loses anything, and in the end
    slots: Spoken | None  # updates that wait, with what the clients had kept


class ClientTable:
    """The way into a table with an update for every client, None where no run needs it.

    Clients keep one of what their codec left out, the server one of what they said last. Tables are
    (rows, population, size); lanes fill in what a round changes of them, (rows, cohort, size).
    """

    def __init__(self, needed: np.ndarray) -> None:
        self.runs = np.flatnonzero(needed)  # those that need it, each with a row
        # The row of every run; out of bounds where it has none: nothing is written, 0 is read.
        self.rows = np.where(needed, np.cumsum(needed) - 1, len(self.runs))

    def empty(self, clients: int, size: int, dtype: Any) -> Any:
        """Zeros for so many clients."""
        return jnp.zeros((len(self.runs), clients, size), dtype) if len(self.runs) else None

    def of(self, table: Any, clients: jax.Array) -> Any:
        """The part of the clients that are asked, (seeds, cohort)."""
        return None if table is None else table[self._places(clients)]

    def put(self, table: Any, clients: jax.Array, said: jax.Array, new: Any) -> Any:
        """The table with `new` for the cohorts' clients that spoke, (all runs, cohort)."""
        if table is None:
            return None
        place = self._places(clients)
        return table.at[place].set(jnp.where(said[self.runs][..., None], new, table[place]))

    def _places(self, clients: jax.Array) -> tuple[Any, Any]:
        return np.arange(len(self.runs))[:, None], clients[self.runs % len(clients)]

    def read(self, part: Any, item: Item) -> Any:
        """The updates, (lanes, size), of items, from the part of the clients that are asked."""
        row = jnp.asarray(self.rows)[item.run]
        return part.at[row, item.slot].get(mode="fill", fill_value=0)

    def write(self, part: Any, item: Item, updates: jax.Array, which: jax.Array) -> Any:
        """The part with the updates, (lanes, size), of the items in the chosen lanes."""
        if part is None:
            return None
        row = jnp.where(which, jnp.asarray(self.rows)[item.run], len(self.runs))
        return part.at[row, item.slot].set(updates, mode="drop")


class Collector:
    """Collects what clients trained; compare `client.respond`, `client.through` and `tally.add`."""

    def __init__(self, policies: tuple[Policy, ...], seeds: int, cohort: int, size: int) -> None:
        self.policies, self.seeds, self.cohort, self.size = policies, seeds, cohort, size
        self.runs = len(policies) * seeds
        # Of the runs whose clients keep what their codec left out, and of those in which a silent
        # client's own last update stands in for it.
        keeps = [p.codec.feedback and p.codec.error(size) > 0 for p in policies]
        self.keeping = ClientTable(np.repeat(keeps, seeds))
        self.repeating = ClientTable(np.repeat([p.stand_in.own for p in policies], seeds))
        # A policy for each lossy codec that does something else, and which arms have that.
        prints = [(fingerprint(p.codec), p.rule.nbytes is None) for p in policies]
        self._codecs = [
            (policy, np.array([other == prints[arm] for other in prints]))
            for arm, policy in enumerate(policies)
            if prints.index(prints[arm]) == arm and policy.loses(size)
        ]

    def begin(self, thetas: list[jax.Array], lanes: int, work: RoundInputs) -> RoundSums:
        """The sums before anyone is heard; `thetas` are the runs' weights, layer by layer."""
        dtype, size = work.thetas.dtype, work.thetas.shape[1]
        table = jnp.zeros((self.runs, self.cohort), dtype)
        whole = table.astype(jnp.int32)
        sums, taken, slots = [jnp.zeros_like(theta) for theta in thetas], None, None
        if self._codecs:
            sums, empty = [jnp.zeros((self.runs, size), dtype)], jnp.zeros((lanes, size), dtype)
            none = jnp.zeros(lanes, jnp.int32)
            taken, slots = jnp.int32(0), Spoken(Item(*[none] * 6), empty, empty[:, 0], none)
        return RoundSums(
            sums, norms=table, said=whole, chances=table, nbytes=whole,
            left=jax.tree.map(jnp.zeros_like, work.residuals),
            last=self.repeating.empty(self.cohort, size, dtype), taken=taken, slots=slots,
        )  # fmt: skip

    def hear(
        self, heard: RoundSums, item: Item, ended: jax.Array, updates: list[jax.Array],
        loss: jax.Array, work: RoundInputs,
    ) -> RoundSums:  # fmt: skip
        """The sums with the clients in them whose lanes have `ended`.

        `updates` are the Δ of all lanes, layer by layer, (lanes, …) each; `loss` is a mean.
        """
        norms = jax.vmap(_norm)(updates)
        weight = work.who.examples[item.seed, item.slot].astype(norms.dtype)
        stats = ClientStats(norms, work.uniforms[item.seed, item.slot], loss, examples=weight)
        if work.silence is not None:
            stats = stats._replace(silence=work.silence[item.run, item.slot])
        decision = self._decide(item, stats, work)
        row = jnp.where(ended, item.run, self.runs)  # out of bounds, and dropped

        def note(table: jax.Array, values: jax.Array) -> jax.Array:
            return table.at[row, item.slot].set(values, mode="drop")

        heard = heard._replace(
            norms=note(heard.norms, norms),
            said=note(heard.said, decision.speaks.astype(jnp.int32)),
            chances=note(heard.chances, decision.probability),
            nbytes=note(heard.nbytes, decision.nbytes),
        )
        speaks = ended & decision.speaks
        spoken = Spoken(item, updates, weight / decision.probability, decision.nbytes)
        if heard.slots is None:
            return self._sum(heard, spoken, speaks)
        # XLA would put together what it needs of the layers again and again.
        whole = jax.lax.optimization_barrier(jnp.concatenate(updates, axis=1))
        return self._wait(heard, spoken._replace(updates=whole), speaks, work)

    def end(self, heard: RoundSums, work: RoundInputs) -> RoundSums:
        """The sums of the round, with all that still waits."""
        if heard.slots is not None:
            heard = self._empty(heard, work)
        return heard._replace(sums=jnp.concatenate(heard.sums, axis=1), taken=None, slots=None)

    def _decide(self, item: Item, stats: ClientStats, work: RoundInputs) -> client.Decision:
        """What each lane's client decides under the rule of its arm."""
        lanes, arm = jnp.arange(len(item.run)), item.run // self.seeds
        decisions = []
        for policy, context in zip(self.policies, work.contexts, strict=True):
            told = jax.tree.map(lambda number: number[item.seed], context)
            decision, lengths = client.decide(policy.rule, stats, told), policy.codec.lengths
            if lengths is not None:
                decision = decision._replace(nbytes=lengths.fit(self.size, decision.nbytes))
            decisions.append(jax.tree.map(lambda x: jnp.broadcast_to(x, lanes.shape), decision))
        return jax.tree.map(lambda *arms: jnp.stack(arms)[arm, lanes], *decisions)

    def _sum(self, heard: RoundSums, spoken: Spoken, speaks: jax.Array) -> RoundSums:
        """Adds what was spoken, layer by layer, where no codec loses anything."""
        pairs = zip(heard.sums, spoken.updates, strict=True)
        sums = [self._add(total, spoken._replace(updates=layer), speaks) for total, layer in pairs]
        whole = jnp.concatenate(spoken.updates, axis=1)  # left out by XLA where nobody needs it
        last = self.repeating.write(heard.last, spoken.item, whole, speaks)
        return heard._replace(sums=sums, last=last)

    def _add(self, sums: jax.Array, spoken: Spoken, counts: jax.Array) -> jax.Array:
        """The runs' sums with n·Δ/p of the clients that count."""
        updates, run = spoken.updates, spoken.item.run
        scaled = in_lanes(counts, spoken.weight[:, None] * updates, jnp.zeros_like(updates))
        if len(counts) == 1:
            return sums.at[run[0]].add(scaled[0])
        # A product with a one-hot matrix: a scatter-add would sum in an order of its own each time
        # on a GPU.
        chosen = jax.nn.one_hot(run, self.runs, axis=0, dtype=sums.dtype)
        return sums + jnp.matmul(chosen, scaled, precision="highest")

    def _wait(
        self, heard: RoundSums, spoken: Spoken, speaks: jax.Array, work: RoundInputs
    ) -> RoundSums:
        """Puts spoken updates, plus what clients had kept, into free slots; where too few are free,
        all slots are emptied first."""
        lanes, more = len(speaks), jnp.sum(speaks, dtype=jnp.int32)
        crowded, empty = heard.taken + more > lanes, partial(self._empty, work=work)
        heard = jax.lax.cond(crowded, empty, lambda heard: heard, heard)
        first = jnp.where(crowded, 0, heard.taken)
        place = jnp.where(speaks, first + jnp.cumsum(speaks) - 1, lanes)  # out of bounds, dropped
        if work.residuals is not None:
            kept = self.keeping.read(work.residuals, spoken.item)
            spoken = spoken._replace(updates=spoken.updates + kept)
        put = jax.tree.map(lambda a, new: a.at[place].set(new, mode="drop"), heard.slots, spoken)
        return heard._replace(taken=first + more, slots=put)

    def _empty(self, heard: RoundSums, work: RoundInputs) -> RoundSums:
        """Adds what the server decodes of the updates that wait, and notes what codecs left out.

        Where the decoded norm does not fit the reported one, the update is rejected.
        """
        waiting = heard.slots
        assert waiting is not None
        item = waiting.item
        taken = jnp.arange(len(item.run)) < heard.taken
        decoded, fits = self._decode(waiting, taken, work)
        left = self.keeping.write(heard.left, item, waiting.updates - decoded, taken)
        last = self.repeating.write(heard.last, item, decoded, fits)
        wrong = jnp.where(taken & ~fits, item.run, self.runs)  # out of bounds: dropped
        norms = heard.norms.at[wrong, item.slot].set(jnp.nan, mode="drop")
        decoded = in_lanes(fits, decoded, jnp.zeros_like(decoded))
        total = self._add(heard.sums[0], waiting._replace(updates=decoded), fits)
        return heard._replace(sums=[total], norms=norms, left=left, last=last)

    def _decode(
        self, waiting: Spoken, taken: jax.Array, work: RoundInputs
    ) -> tuple[jax.Array, jax.Array]:
        """What the server decodes of each update, and which of those in taken slots fit."""
        item, arm = waiting.item, waiting.item.run // self.seeds
        keys = jax.tree.map(lambda k: k[item.seed], work.keys)
        keys = jax.vmap(draws.codec_key)(keys, item.client)
        decoded, fits = waiting.updates, taken
        for policy, arms in self._codecs:
            own = jnp.asarray(arms)[arm] & taken
            read, right = jax.lax.cond(
                jnp.any(own),
                map_lanes(len(taken), partial(_through, policy)),
                lambda updates, keys, nbytes: (updates, taken),
                waiting.updates, keys, waiting.nbytes,
            )  # fmt: skip
            decoded, fits = in_lanes(own, read, decoded), jnp.where(own, right, fits)
        return decoded, fits


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
    if policy.rule.nbytes is not None:  # the norm's range would depend on a traced number
        return read, jnp.isfinite(norm)
    return read, tally.fits(codec, arrays.norm(update), norm, size)


def _norm(layers: list[jax.Array]) -> jax.Array:
    """The norm of the vector that the layers make up."""
    norms = [arrays.norm(layer) for layer in layers]
    return norms[0] if len(norms) == 1 else arrays.norm(jnp.stack(norms))


def in_lanes(lanes: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """`new` in the chosen lanes, `old` in the others."""
    return jnp.where(lanes.reshape(-1, *[1] * (jnp.ndim(new) - 1)), new, old)


def map_lanes(lanes: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap`; over one lane without the batch axis that would slow matrix products down."""
    if lanes > 1:
        return jax.vmap(function)

    def call(*args: Any) -> Any:
        first = jax.tree.map(lambda a: a[0], args)
        return jax.tree.map(lambda a: jnp.asarray(a)[None], function(*first))

    return call
