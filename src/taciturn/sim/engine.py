"""The compiled engine: whole experiments as one JAX program.

Every client of every cohort of every run (an arm with a seed) is an *item*. Items are packed into
*lanes* (`plan.py`), which train on the devices of a mesh (`lanes.py`). Then the server of every arm
takes its step, seeds side by side (`rounds.py`). Rounds go in chunks, whose length does not matter
to the result. What is here runs on the host: it plans, compiles, and calls chunk by chunk.
"""

import functools
import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from taciturn.core import downlink
from taciturn.core.fingerprints import fingerprint
from taciturn.core.policy import Policy
from taciturn.errors import InputError, RunError
from taciturn.progress import Chunk, Compiling, Group
from taciturn.settings import Settings
from taciturn.sim import defaults, devices, draws, history, plan
from taciturn.sim.client_updates import Cohorts
from taciturn.sim.lanes import Numbers, Schedule
from taciturn.sim.rounds import CHUNK, REAL, WHOLE, Given, RoundMetrics, Rounds, SimState
from taciturn.tasks.clients import Clients, Generated
from taciturn.tasks.task import Task, Tested, with_test

log = logging.getLogger("taciturn")
_run_keys = jax.jit(jax.vmap(draws.run_keys))

_CHUNK_SECONDS = 1.0  # what a chunk should take, so that progress shows
_SMALL = 2_000  # weights
_PLANNED = 256  # rounds whose cohorts are drawn at a time


def stream(
    task: Task, arms: Mapping[str, Policy], settings: Settings, groups: Sequence[Group] = ()
) -> Generator[Chunk | Compiling]:
    """Every policy of `arms` with every seed, side by side as far as memory goes, chunk by chunk.

    With `choice` arms go one after another, because each has cohorts of its own. `groups` are what
    is left of a simulation that goes on; all of it by default.
    """
    together = [tuple(arms)] if settings.choice is None else [(arm,) for arm in arms]
    waiting = list(groups) or [Group(some, settings.all_seeds) for some in together]
    while waiting:
        group = waiting.pop(0)
        own = {name: arms[name] for name in group.arms}
        some = replace(settings, seeds=group.seeds, seed=None)
        if group.lanes is not None:  # other lanes add up in another order
            some = replace(some, lanes=group.lanes)
        structures = tuple(map(structure_of, own.values()))
        try:
            clients = task.clients
            drawn = (clients.rows, clients.example) if isinstance(clients, Generated) else ()
            functions = fingerprint((task.init, task.loss, task.metrics, task.cohort, *drawn))
            program = _program(task, functions, structures, jnp.zeros(0).dtype, some.form)
            for record in program.run(own, some, group):
                if isinstance(record, Chunk):
                    record = record._replace(waiting=tuple(waiting))
                yield record
        except _TooLarge as error:
            if group.done:
                raise RunError(f"{error} since they were stopped.") from None
            log.warning("%s: they go in two groups, one after the other", error)
            _program.cache_clear()  # their lanes take memory
            which = "arms" if len(group.arms) > 1 else "seeds"
            names = getattr(group, which)
            middle = len(names) // 2
            halves = names[:middle], names[middle:]
            waiting[:0] = [group._replace(**{which: half}) for half in halves]


class _TooLarge(Exception):
    """Not all runs fit into memory, whatever the lanes: how many, bytes that they need and have."""

    def __str__(self) -> str:
        runs, needed, most = self.args
        return f"{runs} runs side by side need {needed / 1e9:.1f} GB and there are {most / 1e9:.1f}"


@dataclass(frozen=True)
class _Structure:
    """A policy that equals every policy whose functions do the same: the key of a program."""

    policy: Policy = field(compare=False)
    key: Any


def structure_of(policy: Policy) -> _Structure:
    """The structure of a policy. Its rule's `init` is called on the host, and left out."""
    rule = {name: own for name, own in vars(policy.rule).items() if name not in ("init", "params")}
    functions = (rule, policy.stand_in, policy.codec, policy.down)
    return _Structure(policy, (policy.structure, fingerprint(functions)))


@functools.lru_cache(maxsize=8)
def _program(
    task: Task, functions: Any, structures: tuple[_Structure, ...], dtype: Any, form: Settings
) -> "Program":
    """The program for all that it depends on: what the task's functions do too, and JAX's dtype."""
    return Program(task, [structure.policy for structure in structures], form)


@functools.lru_cache(maxsize=1)
def _placed(task: Task, everywhere: NamedSharding) -> tuple[Clients, Tested]:
    """A task's clients and test set on the devices: one task's at a time, for all its programs."""
    return jax.device_put(with_test(task), everywhere)


class Program:
    """One experiment, compiled: a task, the forms of its arms, and of its settings."""

    def __init__(self, task: Task, policies: list[Policy], form: Settings) -> None:
        self.task, self.policies, self.form = task, policies, form
        self.mesh = devices.mesh(form.devices)
        self.everywhere = NamedSharding(self.mesh, PartitionSpec())
        self.rounds = rounds = Rounds(task, policies, form, self.mesh)
        self.seeds, self.cohort, self.runs = rounds.seeds, rounds.cohort, rounds.runs
        self.size = rounds.model.size
        self.tested = history.tested_columns(task)
        self.lanes = (form.lanes or 0) * self.mesh.devices.size
        self._draw = jax.jit(rounds.draw, out_shardings=self.everywhere)
        self._begin = jax.jit(rounds.begin, static_argnums=2, out_shardings=self.everywhere)
        self._evaluate = jax.jit(rounds.test, out_shardings=self.everywhere)
        self._chunk: Any = None  # compiled when it is first needed, and so is `_choose`
        self._choose: Any = None

    def run(
        self, arms: Mapping[str, Policy], settings: Settings, group: Group
    ) -> Iterator[Chunk | Compiling]:
        """Runs the arms, which have the forms that the program was made for, from `group` on."""
        precision = defaults.PRECISIONS[self.form.precision]
        # Not around all of it: a generator's caller would have the precision too.
        precise = functools.partial(jax.default_matmul_precision, precision)
        with precise():
            clients, test = _placed(self.task, self.everywhere)
            self.lanes = self.lanes or self._choose_lanes(clients)
            keys = _run_keys(np.array(settings.all_seeds, np.uint32))
            numbers = Numbers(*(getattr(settings, name) for name in Numbers._fields))
            given = Given(keys, numbers, clients)
            states = self._start(arms, given, group, settings.rounds)
        if self._chunk is None:
            yield Compiling(self.runs)
        planned, done, pace, asking = None, group.done, 0.0, 0.0
        while done < settings.rounds:
            with precise():
                if settings.choice is not None:
                    planned, asking = self._chosen(states, given, done)
                elif planned is None or done % _PLANNED == 0:
                    rounds = np.arange(_PLANNED, dtype=np.int32) + done // _PLANNED * _PLANNED
                    planned = jax.tree.map(np.asarray, self._draw(given, rounds))
                # A chunk's rows; past the end, the last one again.
                rows = np.minimum(done % _PLANNED + np.arange(CHUNK), len(planned.rows) - 1)
                cohorts = Cohorts(*(array[rows] for array in planned))
                count = self._next_count(done, settings, pace)
                states, seen, took = self._train(states, given, done, count, cohorts)
                asked = Cohorts(*(array[:count].swapaxes(0, 1) for array in cohorts))
                columns = self._columns(seen, asked, done, settings)
                done, pace = done + count, (took + asking) / count
                if settings.evaluates(done - 1):
                    result = self._evaluate(self._weights(states), test)
                    for name in self.tested:
                        columns[name][:, :, -1] = np.asarray(result[name])
            last = done == settings.rounds
            yield Chunk(
                group._replace(done=done, lanes=self.lanes // self.mesh.devices.size, state=states),
                columns, np.full(count, pace),
                weights=np.stack([np.asarray(w) for w in self._weights(states)]) if last else None,
                participation=history.participation_of(
                    settings.all_seeds, asked.clients, asked.examples,
                    seen.answers.swapaxes(0, 1).reshape(len(arms), -1),
                ),
            )  # fmt: skip

    def _start(
        self, arms: Mapping[str, Policy], given: Given, group: Group, rounds: int
    ) -> SimState:
        """The states that the group's next round begins with."""
        population, dtype = given.clients.population, jnp.zeros(0).dtype
        first = tuple(policy.rule.init(self.size, rounds) for policy in arms.values())
        rules = jax.tree.map(lambda number: np.full(self.seeds, number, dtype), first)
        forms = self._begin.eval_shape(given.keys, rules, population)
        self._check_memory(forms, population)
        if not group.done:
            return self._begin(given.keys, rules, population)
        return jax.device_put(group.state(forms), self.everywhere)

    @staticmethod
    def _weights(states: SimState) -> tuple[jax.Array, ...]:
        """The weights of every arm, (seeds, size) each: those that clients would get next."""
        return tuple(downlink.trained_from(state) for state in states.servers)

    def _chosen(self, states: SimState, given: Given, done: int) -> tuple[Cohorts, float]:
        """The cohorts of the next round, which depend on the only arm's weights, and seconds."""
        arguments = (*self._weights(states), given, np.int32(done))
        if self._choose is None:
            choose = jax.jit(self.rounds.choose, out_shardings=self.everywhere)
            self._choose = choose.lower(*arguments).compile()
        began = time.perf_counter()
        found = jax.tree.map(np.asarray, self._choose(*arguments))
        return found, time.perf_counter() - began

    def _train(
        self, states: SimState, given: Given, done: int, count: int, cohorts: Cohorts
    ) -> tuple[SimState, RoundMetrics, float]:
        """The state after the next `count` rounds, what was seen of them, and seconds."""
        schedule = self._schedule(cohorts, count)
        arguments = (states, given, np.int32(done), np.int32(count), cohorts, schedule)
        if self._chunk is None:
            arguments = self._compile(arguments)
        began = time.perf_counter()
        states, seen = jax.block_until_ready(self._chunk(*arguments))
        took = time.perf_counter() - began
        return states, jax.tree.map(lambda array: np.asarray(array)[:count], seen), took

    def _columns(
        self, seen: RoundMetrics, asked: Cohorts, first: int, settings: Settings
    ) -> dict[str, np.ndarray]:
        """What was recorded of the rounds from `first` on, (arms, seeds, rounds) each."""
        found = dict(zip(WHOLE, np.moveaxis(seen.whole, (3, 0), (0, 3)), strict=True))
        found |= dict(zip(REAL, np.moveaxis(seen.real, (3, 0), (0, 3)), strict=True))
        found["missing"] = np.broadcast_to((asked.examples == 0).sum(-1), found["spoke"].shape)
        missed = seen.missed
        if missed is None:  # all that download get the model
            missed = np.zeros((len(seen.whole), self.seeds, settings.choice or self.cohort), int)
        missed, kept = missed.swapaxes(0, 1), settings.kept_messages
        return history.recorded(self.policies, self.size, found, missed, first, kept, self.tested)

    def _check_memory(self, states: SimState, population: int) -> None:
        """Raises where the servers' states, and what is kept of clients, leave no room."""
        servers = 2 * devices.bytes_of(states.servers)
        needed, most = servers, devices.least(devices.memory())
        for table, why, instead in (
            (states.residuals, "With feedback every client keeps what was left out",
             "a codec without feedback"),
            (states.last, "With `own` the server keeps what every client said last",
             "another stand-in"),
        ):  # fmt: skip
            if table is None:
                continue
            needed += devices.bytes_of(table)
            alone = servers / self.runs + devices.bytes_of(table) / table.shape[0]
            if alone > 0.9 * most:
                clients = f"{population:,} clients × {self.size:,} weights"
                raise InputError(
                    f"{why}: {clients} need {alone / 1e9:.1f} GB and there are {most / 1e9:.1f}. "
                    f"Fewer clients, or {instead}, would do."
                )
        if needed > 0.9 * most and self.runs > 1:
            raise _TooLarge(self.runs, needed, most)

    def _next_count(self, done: int, settings: Settings, pace: float) -> int:
        """How many rounds the next chunk has: up to the next test, and about a second.

        One where its cohort was chosen: the next cohort depends on its weights.
        """
        if settings.choice is not None:
            return 1
        test, planned = (every - done % every for every in (settings.evaluate_every, _PLANNED))
        wanted = max(1, int(_CHUNK_SECONDS / pace)) if pace else 1
        # Processes take different times, but have to run the same rounds together.
        return devices.least(min(CHUNK, test, planned, settings.rounds - done, wanted))

    def _schedule(self, cohorts: Cohorts, count: int) -> Schedule:
        """What lanes train in the first `count` rounds of a chunk."""
        items = np.zeros((CHUNK, self.runs * self.cohort), np.int32)
        bounds = np.zeros((CHUNK, self.lanes + 1), np.int32)
        for i in range(count):
            steps = np.tile(cohorts.steps[i].reshape(-1), len(self.policies))
            items[i], bounds[i] = plan.pack(steps, self.lanes)
        return Schedule(items, bounds[:, :-1], bounds[:, 1:])

    def _choose_lanes(self, clients: Clients) -> int:
        """How many lanes pay off; one per core of a CPU, unless the model is so small that calls
        cost most."""
        count = self.mesh.devices.size
        if self.rounds.on_cpu and self.size > _SMALL:
            return count
        population = clients.population
        chosen = np.unique(np.linspace(0, population - 1, min(population, 1000), dtype=np.int32))
        rows = np.asarray(jax.jit(lambda clients, c: clients.rows_of(c))(clients, chosen))
        return plan.best_lanes(
            self.rounds.steps(rows), self.cohort, self.seeds, len(self.policies), count
        )

    def _compile(self, arguments: Any) -> Any:
        """Compiles the program, with fewer lanes if it would not fit into memory, and returns the
        arguments with a schedule for the lanes that there are now."""
        while True:
            chunk = jax.jit(self.rounds.train, donate_argnums=0, out_shardings=self.everywhere)
            compiled = chunk.lower(*arguments).compile()
            needed, most = devices.bytes_needed(compiled), devices.least(devices.memory())
            least = self.mesh.devices.size
            if needed <= 0.9 * most or (self.lanes <= least and self.runs == 1):
                self._chunk = compiled
                return arguments
            if self.lanes <= least:
                raise _TooLarge(self.runs, needed, most)
            fewer = int(self.lanes * 0.85 * most / needed) // least * least
            self.lanes = max(least, min(fewer, self.lanes - least))
            log.warning(
                "%.1f GB would not fit into %.1f GB: clients train in %d lanes at a time",
                needed / 1e9, most / 1e9, self.lanes,
            )  # fmt: skip
            *others, count, cohorts, _ = arguments
            arguments = (*others, count, cohorts, self._schedule(cohorts, int(count)))
