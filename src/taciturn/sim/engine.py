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
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from taciturn.core import server, tally
from taciturn.core.fingerprints import fingerprint
from taciturn.core.policy import Policy
from taciturn.progress import Compiling, Progress, Tell
from taciturn.settings import Settings
from taciturn.sim import devices, draws, plan
from taciturn.sim.defaults import PRECISIONS
from taciturn.sim.history import History, join
from taciturn.sim.lanes import Cohorts, LaneTrainer, Numbers, Schedule, Work
from taciturn.sim.local import (
    client_optimizer,
    flat_model,
    make_evaluate,
    make_step,
    server_optimizer,
)
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
    """

    servers: tuple[server.ServerState, ...]
    silence: jax.Array | None


def run(
    task: Task, arms: Mapping[str, Policy], settings: Settings, tell: Tell
) -> dict[str, History]:
    """Every policy of `arms` with every seed, side by side as far as memory goes."""
    try:
        structures = tuple(_Structure(policy) for policy in arms.values())
        program = _program(task, structures, jnp.zeros(0).dtype, settings.form)
        return program.run(arms, settings, tell)
    except _TooLarge as error:
        log.warning("%s", error)
        _program.cache_clear()  # their lanes take memory
    if len(arms) > 1:
        names = list(arms)
        groups = (names[: len(names) // 2], names[len(names) // 2 :])
        found = [
            run(task, {name: arms[name] for name in group}, settings, tell) for group in groups
        ]
        return {name: history for part in found for name, history in part.items()}
    seeds, middle = settings.all_seeds, len(settings.all_seeds) // 2
    parts = [
        run(task, arms, replace(settings, seeds=some), tell)
        for some in (seeds[:middle], seeds[middle:])
    ]
    return {name: join([part[name] for part in parts]) for name in arms}


class _TooLarge(Exception):
    """Not all runs fit into memory, whatever the lanes."""

    def __init__(self, runs: int, needed: float, most: float) -> None:
        super().__init__(
            f"{runs} runs side by side need {needed / 2**30:.1f} GiB and there are "
            f"{most / 2**30:.1f}: they go in two groups, one after the other"
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
        self.trainer = LaneTrainer(
            model=self.model,
            step=make_step(task, transformation, form.precision),
            transformation=transformation,
            policies=tuple(policies),
            seeds=self.seeds,
            cohort=self.cohort,
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

    def run(self, arms: Mapping[str, Policy], settings: Settings, tell: Tell) -> dict[str, History]:
        """Runs the arms, which have the forms that the program was made for."""
        with jax.default_matmul_precision(PRECISIONS[self.form.precision]):
            return self._run(arms, settings, tell)

    def _run(
        self, arms: Mapping[str, Policy], settings: Settings, tell: Tell
    ) -> dict[str, History]:
        clients, test = _placed(self.task, self.everywhere)
        self.lanes = self.lanes or self._choose_lanes(clients)
        numbers = Numbers(settings.lr, settings.clip, settings.server_lr, settings.lr_decay)
        keys = _run_keys(np.array(settings.all_seeds, np.uint32))
        rules = tuple(_spread(policy.rule.init(), self.seeds) for policy in arms.values())
        self._check_states(keys, rules, clients.population)
        states = self._begin(keys, rules, clients.population)
        seen = []
        scores = {
            name: np.full((len(arms), self.seeds, settings.rounds), np.nan)
            for name in ("accuracy", "loss")
        }
        seconds = np.zeros(settings.rounds)
        planned, done, pace = None, 0, 0.0
        while done < settings.rounds:
            if done % _PLANNED == 0:
                rounds = np.arange(done, done + _PLANNED, dtype=np.int32)
                planned = jax.tree.map(np.asarray, self._draw(keys, rounds, clients))
            count = self._next_count(done, settings, pace)
            part = done % _PLANNED
            cohorts = jax.tree.map(lambda a: _rows(a, part), planned)  # noqa: B023
            arguments = (
                states, keys, numbers, np.int32(done), np.int32(count), cohorts,
                self._schedule(cohorts, count), clients,
            )  # fmt: skip
            if self._chunk is None:
                arguments = self._compile(arguments, tell)
            assert self._chunk is not None
            began = time.perf_counter()
            states, new = jax.block_until_ready(self._chunk(*arguments))
            took = time.perf_counter() - began
            seconds[done : done + count] = took / count
            pace = took / count
            seen.append(jax.tree.map(lambda a: np.asarray(a)[..., :count], new))  # noqa: B023
            done += count
            if settings.evaluates(done - 1):
                result = self._evaluate(tuple(state.weights for state in states.servers), test)
                for name, table in scores.items():
                    table[:, :, done - 1] = np.asarray(result[name])
            self._tell(arms, tell, seen, scores["accuracy"], done)
        columns = jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1), *seen)
        return {
            name: History(
                policy=policy,
                seeds=settings.all_seeds,
                cohort=self.cohort,
                size=self.model.size,
                weights=np.asarray(states.servers[a].weights),
                seconds=seconds,
                accuracy=scores["accuracy"][a],
                loss=scores["loss"][a],
                **{key: value[a] for key, value in columns._asdict().items()},
            )
            for a, (name, policy) in enumerate(arms.items())
        }

    def _check_states(self, keys: draws.RunKeys, rules: Any, population: int) -> None:
        """Whether the servers' states leave room for anything else."""
        states = jax.tree.leaves(self._begin.eval_shape(keys, rules, population))
        needed = 2 * sum(state.size * state.dtype.itemsize for state in states)
        most = devices.least(devices.memory())
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

    def _compile(self, arguments: Any, tell: Tell) -> Any:
        """Compiles the program; with fewer lanes if it would not fit into memory.

        Returns:
          The arguments, with a schedule for the lanes that there are now.
        """
        tell(Compiling(self.runs))
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

    def _tell(self, arms: Any, tell: Tell, seen: Any, accuracy: Any, done: int) -> None:
        for a, (name, policy) in enumerate(arms.items()):
            spoke = float(sum(part.spoke[a].sum() for part in seen)) / self.seeds
            tested = accuracy[a][:, ~np.isnan(accuracy[a][0])]
            tell(
                Progress(
                    arm=name,
                    seed=None,
                    round=done,
                    accuracy=float(tested[:, -1].mean()) if tested.size else np.nan,
                    spoke=spoke,
                    asked=done * self.cohort,
                    bytes_up=spoke * policy.codec.nbytes(self.model.size),
                )
            )

    # On the devices ------------------------------------------------------------------------------

    def _draw_cohorts(self, keys: draws.RunKeys, rounds: jax.Array, clients: Clients) -> Cohorts:
        def one(round: jax.Array, key: draws.RunKeys) -> Cohorts:
            chosen = draws.cohort(
                draws.round_keys(key, round), clients.population, self.cohort, round,
                self.task.cohort,
            )  # fmt: skip
            return Cohorts(chosen, clients.rows_of(chosen), clients.examples_of(chosen))

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
        silence = None
        if self.trainer.looks_at("silence"):
            silence = jnp.zeros((self.runs, population), jnp.int32)
        return Carried(servers, silence)

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
        work = Work(
            thetas=jnp.concatenate([state.weights for state in states.servers]),
            contexts=tuple(opening.context for opening in openings),
            uniforms=jax.vmap(lambda key: draws.uniforms(key, self.cohort))(round_keys),
            silence=None if states.silence is None else states.silence[whose],
            keys=round_keys,
            who=who,
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
        said = heard.said > 0
        results = []
        for a, policy in enumerate(self.policies):
            own = slice(a * self.seeds, (a + 1) * self.seeds)
            chances = heard.chances[own] if policy.rule.probability else None
            tallies = jax.vmap(tally.of)(
                heard.sums[own], who.examples, heard.norms[own], said[own], openings[a], chances
            )
            close = functools.partial(server.close, policy, optimizer=optimizer)
            results.append(jax.vmap(close)(states.servers[a], tallies))
        servers, infos = zip(*results, strict=True)
        silence = states.silence
        if silence is not None:
            silence = silence.at[whose].set(jnp.where(said, 0, work.silence + 1))
        return Carried(servers, silence), infos

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
