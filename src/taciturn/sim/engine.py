"""The compiled engine: whole experiments as one JAX program.

Every client of every cohort of every run (an arm with a seed) is an *item*. Items are packed into
*lanes* (`plan.py`), lanes are spread over the devices of a mesh and train there (`lanes.py`). Then
the server of every arm takes its step, seeds side by side. Rounds follow each other inside the
program, in chunks whose length does not matter to the result.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from taciturn.core import server, tally
from taciturn.core.fingerprints import fingerprint
from taciturn.core.policy import Policy
from taciturn.errors import InputError, RunError
from taciturn.progress import Chunk, Compiling, Group
from taciturn.settings import Settings
from taciturn.sim import devices, draws, plan, residuals
from taciturn.sim.defaults import PRECISIONS
from taciturn.sim.hearing import Cohorts, Hearing, Work
from taciturn.sim.history import TESTED, as_recorded
from taciturn.sim.lanes import LaneTrainer, Numbers, Schedule
from taciturn.sim.local import (
    client_optimizer,
    flat_model,
    make_evaluate,
    make_step,
    server_optimizer,
)
from taciturn.sim.states import unpack
from taciturn.tasks.task import Clients, Task, with_test

log = logging.getLogger("taciturn")
_run_keys = jax.jit(jax.vmap(draws.run_keys))

_CHUNK = 64  # rounds in a chunk at the most
_CHUNK_SECONDS = 1.0  # what a chunk should take, so that progress shows
_SMALL = 2_000  # weights
_PLANNED = 256  # rounds whose cohorts are drawn at a time


class Seen(NamedTuple):
    """What is recorded of every round; (arms, seeds, rounds) each."""

    spoke: Any
    rejected: Any
    threshold: Any
    norm_mean: Any
    norm_std: Any


class Carried(NamedTuple):
    """What goes from round to round.

    Attributes:
      servers: a server's state per arm, (seeds, …) each.
      silence: how often in a row each client was silent, (runs, population); None where no rule
        looks at it.
      residuals: what clients keep, (`Hearing.keeping`, population, size); None where nothing is.
    """

    servers: tuple[server.ServerState, ...]
    silence: Any
    residuals: Any


def stream(
    task: Task, arms: Mapping[str, Policy], settings: Settings, groups: Sequence[Group] = ()
) -> Iterator[Chunk | Compiling]:
    """Every policy of `arms` with every seed, side by side as far as memory goes, chunk by chunk.

    Args:
      task, arms, settings: what is simulated.
      groups: what is left of a simulation that goes on; all of it by default.
    """
    waiting = list(groups) or [Group(tuple(arms), settings.all_seeds)]
    while waiting:
        group = waiting.pop(0)
        own = {name: arms[name] for name in group.arms}
        some = replace(settings, seeds=group.seeds, seed=None)
        if group.lanes is not None:  # other lanes add up in another order
            some = replace(some, lanes=group.lanes)
        structures = tuple(_Structure(policy) for policy in own.values())
        try:
            program = _program(task, structures, jnp.zeros(0).dtype, some.form)
            for record in program.run(own, some, group):
                if isinstance(record, Chunk):
                    record = record._replace(waiting=tuple(waiting))
                yield record
        except _TooLarge as error:
            if group.done:
                raise RunError(f"{error} since they were stopped.") from None
            log.warning("%s: they go in two groups, one after the other", error)
            _program.cache_clear()  # their lanes take memory
            waiting[:0] = _halves(group)


def _halves(group: Group) -> list[Group]:
    """The runs of a group in two: half of the arms each, or half of the seeds of the only arm."""
    which = "arms" if len(group.arms) > 1 else "seeds"
    names = getattr(group, which)
    middle = len(names) // 2
    return [group._replace(**{which: some}) for some in (names[:middle], names[middle:])]


class _TooLarge(Exception):
    """Not all runs fit into memory, whatever the lanes."""

    def __init__(self, runs: int, needed: float, most: float) -> None:
        super().__init__(
            f"{runs} runs side by side need {needed / 2**30:.1f} GiB and there are "
            f"{most / 2**30:.1f}"
        )


class _Structure:
    """A policy that equals every policy whose functions do the same: the key of a program.

    A rule's `init` is called on the host for every run: the numbers in it are arguments.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        functions = {
            (part.name, field.name): getattr(part, field.name)
            for part in (policy.rule, policy.stand_in, policy.codec)
            for field in fields(part)
        }
        for name in ("init", "params"):
            del functions[policy.rule.name, name]
        self.key = (policy.structure, fingerprint(functions))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=8)
def _program(task: Task, structures: tuple[_Structure, ...], dtype: Any, form: Settings) -> Program:
    """Programs that were made, by all that they depend on; `dtype` is that of new arrays."""
    return Program(task, [structure.policy for structure in structures], form)


@functools.lru_cache(maxsize=1)
def _placed(task: Task, everywhere: NamedSharding) -> tuple[Clients, Any]:
    """A task's clients and test set on the devices: one task's at a time, for all its programs."""
    clients, test = with_test(task)
    return jax.device_put(clients, everywhere), jax.device_put(test, everywhere)


class Program:
    """One experiment, compiled: a task, the forms of its arms, and of its settings."""

    def __init__(self, task: Task, policies: list[Policy], form: Settings) -> None:
        self.task, self.policies, self.form = task, policies, form
        self.seeds, self.cohort = len(form.all_seeds), form.cohort
        self.runs = len(policies) * self.seeds
        self.items = self.runs * self.cohort
        self.mesh = devices.mesh(form.devices)
        self.on_cpu = self.mesh.devices.flat[0].platform == "cpu"
        self.everywhere = NamedSharding(self.mesh, PartitionSpec())
        self.model = flat_model(task)
        transformation = client_optimizer(form)
        self.hearing = Hearing(tuple(policies), self.seeds, self.cohort)
        self.trainer = LaneTrainer(
            model=self.model,
            step=make_step(task, transformation, form.precision),
            transformation=transformation,
            hearing=self.hearing,
            batch=form.batch,
            epochs=form.epochs,
        )
        self.lanes = 0 if form.lanes is None else form.lanes * self.mesh.devices.size
        self.traces = 0
        self._draw = jax.jit(self._draw_cohorts, out_shardings=self.everywhere)
        self._begin = jax.jit(self._first_states, static_argnums=2, out_shardings=self.everywhere)
        self._evaluate = jax.jit(self._test_all, out_shardings=self.everywhere)
        self._chunk: Callable[..., Any] | None = None

    # On the host ---------------------------------------------------------------------------------

    def run(
        self, arms: Mapping[str, Policy], settings: Settings, group: Group
    ) -> Iterator[Chunk | Compiling]:
        """Runs the arms, which have the forms that the program was made for, from `group` on."""
        # Not around all of it: a generator's caller would have the precision too.
        precise = functools.partial(jax.default_matmul_precision, PRECISIONS[self.form.precision])
        with precise():
            clients, test = _placed(self.task, self.everywhere)
            self.lanes = self.lanes or self._choose_lanes(clients)
            keys = _run_keys(np.array(settings.all_seeds, np.uint32))
            states = self._start(arms, keys, group, clients.population)
        numbers = Numbers(settings.lr, settings.clip, settings.server_lr, settings.lr_decay)
        if self._chunk is None:
            yield Compiling(self.runs)
        planned, done, pace = None, group.done, 0.0
        while done < settings.rounds:
            with precise():
                # Draw.
                if planned is None or done % _PLANNED == 0:
                    planned = self._plan(keys, done, clients)
                cohorts = jax.tree.map(functools.partial(_rows, start=done % _PLANNED), planned)
                count = self._next_count(done, settings, pace)
                # Train.
                states, columns, took = self._train(
                    states, keys, numbers, done, count, cohorts, clients
                )
                done, pace = done + count, took / count
                # Test.
                if settings.evaluates(done - 1):
                    result = self._evaluate(self._weights(states), test)
                    for name in TESTED:
                        columns[name][:, :, -1] = np.asarray(result[name])
            # Tell.
            last = done == settings.rounds
            yield Chunk(
                group._replace(done=done, lanes=self.lanes // self.mesh.devices.size, state=states),
                columns,
                np.full(count, pace),
                self.model.size,
                weights=np.stack([np.asarray(w) for w in self._weights(states)]) if last else None,
            )

    def _start(
        self, arms: Mapping[str, Policy], keys: draws.RunKeys, group: Group, population: int
    ) -> Carried:
        """The states that the group's next round begins with."""
        rules = tuple(_spread(policy.rule.init(), self.seeds) for policy in arms.values())
        forms = self._begin.eval_shape(keys, rules, population)
        self._check_memory(forms, population)
        if not group.done:
            return self._begin(keys, rules, population)
        return jax.device_put(unpack(forms, group.state), self.everywhere)

    @staticmethod
    def _weights(states: Carried) -> tuple[jax.Array, ...]:
        """The weights of every arm, (seeds, size) each."""
        return tuple(state.weights for state in states.servers)

    def _plan(self, keys: draws.RunKeys, done: int, clients: Clients) -> Cohorts:
        """The cohorts of the `_PLANNED` rounds among which the next one is."""
        first = done - done % _PLANNED
        rounds = np.arange(first, first + _PLANNED, dtype=np.int32)
        return jax.tree.map(np.asarray, self._draw(keys, rounds, clients))

    def _train(
        self,
        states: Carried,
        keys: draws.RunKeys,
        numbers: Numbers,
        done: int,
        count: int,
        cohorts: Cohorts,
        clients: Clients,
    ) -> tuple[Carried, dict[str, np.ndarray], float]:
        """The next `count` rounds: the states after them, what was recorded, and seconds."""
        arguments = (
            states, keys, numbers, np.int32(done), np.int32(count), cohorts,
            self._schedule(cohorts, count), clients,
        )  # fmt: skip
        if self._chunk is None:
            arguments = self._compile(arguments)
        assert self._chunk is not None
        began = time.perf_counter()
        states, seen = jax.block_until_ready(self._chunk(*arguments))
        took = time.perf_counter() - began
        columns = {name: np.asarray(a)[..., :count] for name, a in seen._asdict().items()}
        shape = (len(self.policies), self.seeds, count)
        missing = (np.asarray(cohorts.examples)[:count] == 0).sum(-1).T  # (seeds, count)
        columns["missing"] = np.broadcast_to(missing, shape)
        untested = {name: np.full(shape, np.nan) for name in TESTED}
        return states, as_recorded(columns | untested), took

    def _check_memory(self, states: Carried, population: int) -> None:
        """Whether the servers' states, and what clients keep, leave room for anything else."""
        servers, kept = 2 * _bytes_of(states.servers), _bytes_of(states.residuals)
        needed, most = servers + kept, devices.least(devices.memory())
        alone = servers / self.runs + kept / max(1, len(self.hearing.keeping))
        if kept and alone > 0.9 * most:
            raise InputError(
                "With feedback every client keeps what was left out: "
                f"{population:,} clients × {self.model.size:,} weights need "
                f"{alone / 2**30:.1f} GiB and there are {most / 2**30:.1f}. Fewer clients, or a "
                "codec without feedback, would do."
            )
        if needed > 0.9 * most and self.runs > 1:
            raise _TooLarge(self.runs, needed, most)

    def _next_count(self, done: int, settings: Settings, pace: float) -> int:
        """How many rounds the next chunk has: up to the next test, and about a second."""
        test = settings.evaluate_every - done % settings.evaluate_every
        planned = _PLANNED - done % _PLANNED
        wanted = max(1, int(_CHUNK_SECONDS / pace)) if pace else 1
        # Processes take different times, but have to run the same rounds together.
        return devices.least(min(_CHUNK, test, planned, settings.rounds - done, wanted))

    def _schedule(self, cohorts: Cohorts, count: int) -> Schedule:
        """What lanes train in the first `count` rounds of a chunk."""
        items = np.zeros((_CHUNK, self.items), np.int32)
        bounds = np.zeros((_CHUNK, self.lanes + 1), np.int32)
        for i in range(count):
            steps = np.tile(self.trainer.steps(cohorts.rows[i]).reshape(-1), len(self.policies))
            items[i], bounds[i] = plan.pack(steps, self.lanes)
        return Schedule(items, bounds[:, :-1], bounds[:, 1:])

    def _choose_lanes(self, clients: Clients) -> int:
        """As many as pay off; one per core of a CPU, unless the model is so small that calls cost
        most."""
        count = self.mesh.devices.size
        if self.on_cpu and self.model.size > _SMALL:
            return count
        population = clients.population
        chosen = np.unique(np.linspace(0, population - 1, min(population, 1000), dtype=np.int32))
        rows = np.asarray(jax.jit(lambda clients, c: clients.rows_of(c))(clients, chosen))
        return plan.best_lanes(
            self.trainer.steps(rows), self.cohort, self.seeds, len(self.policies), count
        )

    def _compile(self, arguments: Any) -> Any:
        """Compiles the program; with fewer lanes if it would not fit into memory.

        Returns:
          The arguments, with a schedule for the lanes that there are now.
        """
        while True:
            chunk = jax.jit(self._rounds, donate_argnums=0, out_shardings=self.everywhere)
            compiled = chunk.lower(*arguments).compile()
            needed = _bytes_needed(compiled)
            most = devices.least(devices.memory())
            least = self.mesh.devices.size
            if needed > 0.9 * most and self.lanes <= least and self.runs > 1:
                raise _TooLarge(self.runs, needed, most)
            if needed <= 0.9 * most or self.lanes <= least:
                self._chunk = compiled
                return arguments
            fewer = int(self.lanes * 0.85 * most / needed) // least * least
            self.lanes = max(least, min(fewer, self.lanes - least))
            log.warning(
                "%.1f GiB would not fit into %.1f GiB: clients train in %d lanes at a time",
                needed / 2**30, most / 2**30, self.lanes,
            )  # fmt: skip
            cohorts, count = arguments[5], int(arguments[4])
            arguments = (*arguments[:6], self._schedule(cohorts, count), *arguments[7:])

    # On the devices ------------------------------------------------------------------------------

    def _draw_cohorts(self, keys: draws.RunKeys, rounds: jax.Array, clients: Clients) -> Cohorts:
        def one(round: jax.Array, key: draws.RunKeys) -> Cohorts:
            now = draws.round_keys(key, round)
            chosen = draws.cohort(now, clients.population, self.cohort, round, self.task.cohort)
            examples = clients.examples_of(chosen)
            if self.form.dropout:  # who weighs nothing is not heard
                there = draws.answers(now, self.cohort, self.form.dropout)
                examples = jnp.where(there, examples, jnp.zeros_like(examples))
            return Cohorts(chosen, clients.rows_of(chosen), examples)

        return jax.vmap(lambda t: jax.vmap(lambda key: one(t, key))(keys))(rounds)

    def _first_states(self, keys: draws.RunKeys, rules: Any, population: int) -> Carried:
        optimizer = server_optimizer(self.form.server_optimizer, 1.0)
        weights = jax.vmap(self.model.init)(keys.init)

        def first(weights: jax.Array, rule: Any, policy: Policy) -> server.ServerState:
            state = server.init(policy, weights, optimizer)
            return state._replace(memory=state.memory._replace(rule=rule))

        servers = tuple(
            jax.vmap(functools.partial(first, policy=policy))(weights, rule)
            for policy, rule in zip(self.policies, rules, strict=True)
        )
        silence, table, keeping = None, None, len(self.hearing.keeping)
        if self.hearing.looks_at("silence"):
            silence = jnp.zeros((self.runs, population), jnp.int32)
        if keeping:
            table = jnp.zeros((keeping, population, self.model.size), weights.dtype)
        return Carried(servers, silence, table)

    def _rounds(
        self,
        states: Carried,
        keys: draws.RunKeys,
        numbers: Numbers,
        first: jax.Array,
        count: jax.Array,
        cohorts: Cohorts,
        schedule: Schedule,
        clients: Clients,
    ) -> Any:
        """`count` rounds from round `first` on."""
        self.traces += 1
        arms, dtype = len(self.policies), states.servers[0].weights.dtype
        whole = jnp.zeros((arms, self.seeds, _CHUNK), jnp.int32)
        real = jnp.zeros((arms, self.seeds, _CHUNK), dtype)
        seen = Seen(whole, whole, real, real, real)

        def one(i: jax.Array, carry: Any) -> Any:
            states, seen = carry
            who, now = jax.tree.map(lambda a: a[i], (cohorts, schedule))
            states, infos = self._round(states, keys, numbers, first + i, who, now, clients)
            row = Seen(*(jnp.stack([getattr(info, f) for info in infos]) for f in Seen._fields))
            return states, jax.tree.map(lambda old, new: old.at[..., i].set(new), seen, row)

        return jax.lax.fori_loop(0, count, one, (states, seen))

    def _round(
        self,
        states: Carried,
        keys: draws.RunKeys,
        numbers: Numbers,
        round: jax.Array,
        who: Cohorts,
        schedule: Schedule,
        clients: Clients,
    ) -> Any:
        """One round of every run; compare `reference._run_seed`."""
        round_keys = jax.vmap(lambda key: draws.round_keys(key, round))(keys)
        openings = [
            jax.vmap(lambda s, policy=policy: server.open(policy, s.memory))(state)
            for policy, state in zip(self.policies, states.servers, strict=True)
        ]
        whose = (jnp.arange(self.runs)[:, None], jnp.tile(who.clients, (len(self.policies), 1)))
        keeping, table = self.hearing.keeping, states.residuals
        place = residuals.places(keeping, who.clients)
        kept: Any = None if table is None else table[place]
        work = Work(
            thetas=jnp.concatenate([state.weights for state in states.servers]),
            contexts=tuple(opening.context for opening in openings),
            uniforms=jax.vmap(lambda key: draws.uniforms(key, self.cohort))(round_keys),
            keys=round_keys,
            who=who,
            silence=None if states.silence is None else states.silence[whose],
            residuals=kept,
        )
        shared, split = PartitionSpec(), PartitionSpec("lanes")
        heard = jax.shard_map(
            self.trainer,
            mesh=self.mesh,
            in_specs=(Schedule(shared, split, split), shared, shared, shared),
            out_specs=PartitionSpec(),
            check_vma=False,
        )(schedule, work, numbers.at(round), clients)
        optimizer = server_optimizer(self.form.server_optimizer, numbers.server_lr)
        there = jnp.tile(who.examples > 0, (len(self.policies), 1))
        said = (heard.said > 0) & there
        results = []
        for a, policy in enumerate(self.policies):
            own = slice(a * self.seeds, (a + 1) * self.seeds)
            chances = heard.chances[own] if policy.rule.probability else None
            tallies = jax.vmap(functools.partial(tally.of, each=policy.rule.each))(
                heard.sums[own], who.examples, heard.norms[own], said[own], openings[a], chances
            )
            # Those who never answer are no replies that were rejected.
            gone = jnp.sum(~there[own], axis=1, dtype=jnp.int32)
            tallies = tallies._replace(n_rejected=tallies.n_rejected - gone)
            close = functools.partial(server.close, policy, optimizer=optimizer)
            results.append(jax.vmap(close)(states.servers[a], tallies))
        servers, infos = zip(*results, strict=True)
        silence = states.silence
        if silence is not None:
            counted = jnp.where(said, 0, work.silence + there)
            silence = silence.at[whose].set(counted)
        if table is not None:
            table = table.at[place].set(jnp.where(said[keeping][..., None], heard.left, kept))
        return Carried(servers, silence, table), infos

    def _test_all(self, weights: tuple[jax.Array, ...], test: Any) -> dict[str, jax.Array]:
        """The mean of every metric, (arms, seeds) each; devices share the test set."""
        total = len(jax.tree.leaves(test)[0])
        batch = min(total, _TEST_BATCH if self.on_cpu else _TEST_BATCH_ON_GPU)
        count = self.mesh.devices.size
        starts = jnp.arange(0, -(-total // (batch * count)) * batch * count, batch)
        sums = make_evaluate(self.task, self.model, total, batch)

        def share(weights: jax.Array, test: Any, starts: jax.Array) -> Any:
            result = jax.lax.map(lambda w: sums(w, test, starts), weights)
            return jax.lax.psum(result, "lanes")

        result = jax.shard_map(
            share,
            mesh=self.mesh,
            in_specs=(PartitionSpec(), PartitionSpec(), PartitionSpec("lanes")),
            out_specs=PartitionSpec(),
            check_vma=False,
        )(jnp.concatenate(weights), test, starts)
        shape = (len(weights), self.seeds)
        return {name: (value / weight).reshape(shape) for name, (value, weight) in result.items()}


_TEST_BATCH, _TEST_BATCH_ON_GPU = 512, 2048


def _spread(state: Any, count: int) -> Any:
    """A state of Python numbers as one of arrays, the same for every seed."""
    dtype = jnp.zeros(0).dtype
    return jax.tree.map(lambda number: np.full(count, number, dtype), state)


def _rows(array: np.ndarray, start: int) -> np.ndarray:
    """The `_CHUNK` rows from `start` on; past the end, the last one again."""
    return array[np.minimum(np.arange(start, start + _CHUNK), len(array) - 1)]


def _bytes_of(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _bytes_needed(compiled: Any) -> int:
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    return int(
        analysis.temp_size_in_bytes
        + analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
    )
