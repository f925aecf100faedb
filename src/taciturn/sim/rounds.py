"""Rounds as they are traced: what the compiled engine does on the devices.

Draw cohorts, begin, train a chunk of rounds, test: each is a pure function of arrays. `engine.py`
compiles them and calls them from the host.
"""

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from taciturn.core import downlink, server, tally
from taciturn.core.policy import Policy
from taciturn.settings import Settings
from taciturn.sim import draws, history, local
from taciturn.sim.client_updates import Cohorts, Collector, RoundInputs, RoundSums
from taciturn.sim.lanes import LaneTrainer, Schedule
from taciturn.sim.model import flat_model, make_loss_sums, make_sums, scores_of
from taciturn.tasks.clients import Clients
from taciturn.tasks.task import Task, Tested

CHUNK = 64  # rounds in a chunk at the most
_TEST_BATCH, _TEST_BATCH_ON_GPU = 512, 2048  # examples at a time when nothing is learned
WHOLE = ("spoke", "rejected", "nbytes")
REAL = ("threshold", "norm_mean", "norm_std")
WHOLLY, SPLIT = PartitionSpec(), PartitionSpec("lanes")  # what a device gets of an argument
# What does not change from round to round: `RunKeys`, (seeds,), `Numbers` and `Clients`.
Given = namedtuple("Given", "keys numbers clients")


class RoundMetrics(NamedTuple):
    """What is recorded of every round, (rounds, arms, seeds, …) each.

    Few arrays with many columns: on a GPU a number takes as long to write as a row.
    """

    whole: Any  # the fields `WHOLE` of `RoundInfo`
    real: Any  # `REAL`
    answers: Any  # what every client answered, as in `history`, (rounds, runs, cohort)
    # How many messages each client had missed, (rounds, seeds, cohort); None without public models
    missed: Any


class SimState(NamedTuple):
    """What goes from round to round; as in `reference.SimState`, what nobody needs is None."""

    servers: tuple[server.ServerState, ...]  # per arm, (seeds, …) each
    silence: Any  # (runs, population)
    residuals: Any  # the table `Collector.keeping`
    versions: Any  # (seeds, population)
    last: Any  # the table `Collector.repeating`


class Rounds:
    """The rounds of one experiment: a task, the forms of its arms, and of its settings."""

    def __init__(self, task: Task, policies: list[Policy], form: Settings, mesh: Mesh) -> None:
        self.task, self.policies, self.form, self.mesh = task, policies, form, mesh
        self.seeds, self.cohort = len(form.all_seeds), form.cohort
        self.runs = len(policies) * self.seeds
        self.on_cpu = mesh.devices.flat[0].platform == "cpu"
        self.model = flat_model(task)
        self.collector = Collector(tuple(policies), self.seeds, self.cohort, self.model.size)
        optimizer = local.client_optimizer(form)
        step = local.make_step(task, self.model, optimizer, form.precision)
        fixed = self.model, step, optimizer, self.collector, form.batch
        self.trainer = functools.partial(LaneTrainer, *fixed)
        self.test_batch = _TEST_BATCH if self.on_cpu else _TEST_BATCH_ON_GPU

    def steps(self, rows: Any) -> Any:
        """How many local steps clients with so many rows take."""
        return self.form.epochs * (-(-rows // self.form.batch))

    def on_devices(self, function: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
        """The function on every device, each with such shares of the arguments and one result."""
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=specs, out_specs=WHOLLY, check_vma=False
        )

    def draw(self, given: Given, rounds: jax.Array) -> Cohorts:
        """The cohorts of these rounds."""
        population = given.clients.population

        def one(round: jax.Array, key: draws.RunKeys) -> Cohorts:
            now = draws.round_keys(key, round)
            chosen = draws.cohort(now, population, self.cohort, round, self.task.cohort)
            return self._cohort(now, given, chosen)

        return jax.vmap(lambda t: jax.vmap(lambda key: one(t, key))(given.keys))(rounds)

    def choose(self, weights: jax.Array, given: Given, round: jax.Array) -> Cohorts:
        """The cohorts of one round: the candidates whose loss is largest at the weights, (seeds,
        size); devices share the candidates' rows."""
        assert self.form.choice is not None
        clients, batch = given.clients, self.test_batch
        now = jax.vmap(lambda key: draws.round_keys(key, round))(given.keys)
        examples = clients.examples_of(jnp.arange(clients.population))
        draw = functools.partial(draws.candidates, examples=examples, size=self.form.choice)
        candidates = jax.vmap(draw)(now)
        stride = batch * self.mesh.devices.size
        sums = make_loss_sums(self.task, self.model, batch)

        def share(weights: jax.Array, candidates: jax.Array, clients: Clients, start: Any) -> Any:
            pairs = (weights, candidates)
            own = jax.lax.map(lambda pair: sums(*pair, clients, start[0], stride), pairs)
            return jax.lax.psum(own, "lanes")

        starts = jnp.arange(0, stride, batch, dtype=jnp.int32)
        everywhere = self.on_devices(share, WHOLLY, WHOLLY, WHOLLY, SPLIT)
        value, weight = everywhere(weights, candidates, clients, starts)
        # NaN counts least; of equal losses the first is taken, in the order of the draw.
        losses = jnp.where(jnp.isnan(value / weight), -jnp.inf, value / weight)
        _, best = jax.lax.top_k(losses, self.cohort)
        chosen = jnp.take_along_axis(candidates, best, axis=1)
        found = jax.vmap(lambda key, who: self._cohort(key, given, who))(now, chosen)
        return jax.tree.map(lambda array: array[None], found)

    def _cohort(self, keys: draws.RoundKeys, given: Given, chosen: jax.Array) -> Cohorts:
        """The cohort of these clients, for a round of one seed."""
        examples, rows = given.clients.examples_of(chosen), given.clients.rows_of(chosen)
        if self.form.dropout:  # a client that weighs nothing is left out
            there = draws.answers(keys, self.cohort, given.numbers.dropout)
            examples = jnp.where(there, examples, jnp.zeros_like(examples))
        steps = self.steps(rows)
        if self.form.stragglers:
            steps = draws.local_steps(keys, steps, given.numbers.stragglers)
        return Cohorts(chosen, rows, examples, steps)

    def begin(self, keys: draws.RunKeys, rules: Any, population: int) -> SimState:
        """What the first round begins with; `rules` are the states of the arms' rules."""
        optimizer = local.server_optimizer(self.form.server_optimizer, 1.0)
        # One after another: JAX factorises matrices side by side on a CPU's threads, and two such
        # calls in one program can wait for each other for ever.
        weights = jax.lax.map(self.model.init, keys.init)

        def first(weights: jax.Array, rule: Any, policy: Policy) -> server.ServerState:
            state = server.init(policy, weights, optimizer, rounds=1)  # rules have their own
            return state._replace(memory=state.memory._replace(rule=rule))

        servers = tuple(
            jax.vmap(functools.partial(first, policy=policy))(weights, rule)
            for policy, rule in zip(self.policies, rules, strict=True)
        )
        looks = any("silence" in policy.rule.looks_at for policy in self.policies)
        public = any(policy.has_public for policy in self.policies)
        of_clients = population, self.model.size, weights.dtype
        return SimState(
            servers,
            silence=jnp.zeros((self.runs, population), jnp.int32) if looks else None,
            residuals=self.collector.keeping.empty(*of_clients),
            versions=jnp.zeros((self.seeds, population), jnp.int32) if public else None,
            last=self.collector.repeating.empty(*of_clients),
        )

    def train(
        self, states: SimState, given: Given, first: jax.Array, count: jax.Array, cohorts: Cohorts,
        schedule: Schedule,
    ) -> tuple[SimState, RoundMetrics]:  # fmt: skip
        """The states after `count` rounds from round `first` on, and the metrics of these."""
        shape, dtype = (CHUNK, len(self.policies), self.seeds), states.servers[0].weights.dtype
        seen = RoundMetrics(
            jnp.zeros((*shape, len(WHOLE)), int),
            jnp.zeros((*shape, len(REAL)), dtype),
            jnp.zeros((CHUNK, self.runs, self.cohort), jnp.int8),
            None if states.versions is None else jnp.zeros_like(cohorts.clients),
        )

        def one(i: jax.Array, carry: tuple[SimState, RoundMetrics]) -> Any:
            states, seen = carry
            who, now = jax.tree.map(lambda a: a[i], (cohorts, schedule))
            if self.form.choice is not None:  # they were drawn by what they weigh
                who = who._replace(examples=jnp.sign(who.examples))
            states, row = self._round(states, given, first + i, who, now)
            return states, jax.tree.map(lambda old, new: old.at[i].set(new), seen, row)

        found: tuple[SimState, RoundMetrics] = jax.lax.fori_loop(0, count, one, (states, seen))
        return found

    def _round(
        self, states: SimState, given: Given, round: jax.Array, who: Cohorts, schedule: Schedule
    ) -> tuple[SimState, RoundMetrics]:
        """One round of every run; compare `reference._Run.round`."""
        keys = jax.vmap(lambda key: draws.round_keys(key, round))(given.keys)
        configs = [
            jax.vmap(lambda s, policy=policy: server.open(policy, s.memory, self.cohort))(state)
            for policy, state in zip(self.policies, states.servers, strict=True)
        ]
        work = RoundInputs(
            thetas=jnp.concatenate([downlink.trained_from(state) for state in states.servers]),
            contexts=tuple(config.context for config in configs),
            uniforms=jax.vmap(lambda key: draws.uniforms(key, self.cohort))(keys),
            keys=keys,
            who=who,
            silence=None if states.silence is None else states.silence[self._places(who)],
            residuals=self.collector.keeping.of(states.residuals, who.clients),
        )
        rate = local.learning_rate(given.numbers, self.form.lr_schedule, round)
        numbers = given.numbers._replace(lr=rate)
        specs = Schedule(WHOLLY, SPLIT, SPLIT), WHOLLY, WHOLLY, WHOLLY
        train = self.on_devices(lambda *round: self.trainer(*round).train(), *specs)
        heard: RoundSums = train(schedule, work, numbers, given.clients)
        there = self._of_runs(who.examples > 0)
        heard = heard._replace(said=(heard.said > 0) & there)
        optimizer = local.server_optimizer(self.form.server_optimizer, numbers.server_lr)
        closed = [
            self._close(arm, states, config, work, heard, optimizer)
            for arm, config in enumerate(configs)
        ]
        servers, infos = zip(*closed, strict=True)
        whole, real = (
            jnp.stack([jnp.column_stack([getattr(info, n) for n in names]) for info in infos])
            for names in (WHOLE, REAL)
        )
        answers = jnp.where(heard.said, history.SPOKE, history.SILENT).astype(jnp.int8)
        answers = jnp.where(there & jnp.isfinite(heard.norms), answers, jnp.int8(history.NO_ANSWER))
        missed = None
        if states.versions is not None:
            missed = round - jnp.take_along_axis(states.versions, who.clients, axis=1)
        states = self._remember(states._replace(servers=servers), work, heard, round)
        return states, RoundMetrics(whole, real, answers, missed)

    def _of_runs(self, of_seeds: jax.Array) -> jax.Array:
        """What is the same in all arms, (seeds, cohort), for every run."""
        return jnp.tile(of_seeds, (len(self.policies), 1))

    def _places(self, who: Cohorts) -> tuple[jax.Array, jax.Array]:
        """Where the clients of all runs are in a table of (runs, population)."""
        return jnp.arange(self.runs)[:, None], self._of_runs(who.clients)

    def _close(
        self, arm: int, states: SimState, config: tally.RoundConfig, work: RoundInputs,
        heard: RoundSums, optimizer: server.Optimizer,
    ) -> tuple[server.ServerState, server.RoundInfo]:  # fmt: skip
        """The servers of an arm after a round, seeds side by side, and what people look at."""
        policy, own = self.policies[arm], slice(arm * self.seeds, (arm + 1) * self.seeds)
        examples, sums = work.who.examples, heard.sums[own]
        norms, said, chances = heard.norms[own], heard.said[own], heard.chances[own]
        if policy.stand_in.own:
            weight = jax.vmap(tally.stands_in_for)(examples, norms, said, chances)
            repeating = self.collector.repeating
            last = repeating.of(states.last, work.who.clients)[repeating.rows[own]]
            sums = sums + jnp.einsum("rc,rcs->rs", weight, last, precision="highest")

        def close(state: Any, config: Any, key: Any, gone: Any, clients: Any) -> Any:
            heard = tally.of(config=config, each=policy.rule.each, **clients)
            # A client that never answers is no reply that was rejected.
            heard = heard._replace(n_rejected=heard.n_rejected - gone)
            state, info = server.close(policy, state, heard, optimizer)
            return downlink.publish(policy, state, draws.downlink_key(key)), info

        gone = jnp.sum(examples <= 0, axis=1, dtype=jnp.int32)
        clients = {"spoken": sums, "examples": examples, "norms": norms, "spoke": said,
                   "probabilities": chances, "nbytes": heard.nbytes[own]}  # fmt: skip
        found: tuple[server.ServerState, server.RoundInfo] = jax.vmap(close)(
            states.servers[arm], config, work.keys, gone, clients
        )
        return found

    def _remember(
        self, states: SimState, work: RoundInputs, heard: RoundSums, round: jax.Array
    ) -> SimState:
        """The state with what is kept of each client after a round."""
        who, said, silence, versions = work.who, heard.said, states.silence, states.versions
        there = who.examples > 0
        if silence is not None:
            new = jnp.where(said, 0, work.silence + self._of_runs(there))
            silence = silence.at[self._places(who)].set(new)
        if versions is not None:  # those who answer have the version of this round
            seed = jnp.arange(self.seeds)[:, None]
            versions = versions.at[seed, who.clients].max(jnp.where(there, round, 0))
        keeping, repeating = self.collector.keeping, self.collector.repeating
        counted = said & jnp.isfinite(heard.norms)
        return states._replace(
            silence=silence,
            residuals=keeping.put(states.residuals, who.clients, said, heard.left),
            versions=versions,
            last=repeating.put(states.last, who.clients, counted, heard.last),
        )

    def test(self, weights: tuple[jax.Array, ...], test: Tested) -> dict[str, jax.Array]:
        """What was tested, (arms, seeds) each; devices share the test set."""
        batch, count = min(test.total, self.test_batch), self.mesh.devices.size
        starts = jnp.arange(0, -(-test.total // (batch * count)) * batch * count, batch)
        sums = make_sums(self.task, self.model, batch)

        def share(weights: jax.Array, test: Tested, starts: jax.Array) -> Any:
            result = jax.lax.map(lambda w: sums(w, test, starts), weights)
            return jax.lax.psum(result, "lanes")

        everywhere = self.on_devices(share, WHOLLY, WHOLLY, SPLIT)
        scores = scores_of(*everywhere(jnp.concatenate(weights), test, starts))
        return {name: score.reshape(len(weights), self.seeds) for name, score in scores.items()}
