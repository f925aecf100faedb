"""Runs plans in folders: starts them, goes on with those that were stopped, writes what came out.

A folder has the plan (`config.toml`), the rounds (`metrics.csv`), checkpoints while it runs, and at
the end weights, a picture and the summary: a run without a summary was stopped. Where a plan has a
list, a sweep, its folder has a folder for every value.
"""

import contextlib
import functools
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn import runs
from taciturn.core.policy import Policy, import_files, parse
from taciturn.errors import InputError, RunError, Stopped, UnknownName, WriteError
from taciturn.progress import Compiling, Progress, Tell
from taciturn.report import figures, series
from taciturn.report.terminal import Live
from taciturn.report.versions import versions
from taciturn.settings import Plan, Settings, points, read_config
from taciturn.sim import History, fill_in, follow, infeasible
from taciturn.sim.checkpoint import remove_checkpoints
from taciturn.sim.history import participation_table
from taciturn.sim.model import model_of, named_weights
from taciturn.summary import FULL, difference, noise_floor
from taciturn.tasks import load
from taciturn.tasks.check import metric_names
from taciturn.tasks.task import Task, how_tested
from taciturn.track import Tracker

NUDGED = "nudged"  # the folder of the runs that measure the noise floor


class Ready(NamedTuple):
    """A plan that was checked, and its data."""

    plan: Plan
    task: Task
    policies: dict[str, Policy]


class Told(NamedTuple):
    """Who is told of a run while it goes on: the terminal or a log file, unless `quiet`, and the
    tracker that `track` names."""

    quiet: bool = False
    track: str | None = None


def policies_of(text: str) -> dict[str, Policy]:
    """The arms of a text such as `full; adaptive+ou`."""
    found: dict[str, Policy] = {}
    for part in text.split(";"):
        try:
            policy = parse(part.strip())
        except InputError as error:
            hint = " Arms are separated by semicolons." if ", " in part else ""
            raise InputError(f"{error}{hint}") from None
        if found.setdefault(str(policy), policy) is not policy:
            raise InputError(f"The arm {policy} is there twice.")
    return found


def start(values: Mapping[str, Any], out: Path | None, told: Told) -> tuple[Path, dict[str, Any]]:
    """Runs a plan, or every point of a sweep, in `out` or a new folder in `runs/`; the folder and
    its summary."""
    ready = prepare(values)  # what is wrong leaves no folder behind
    with runs.create(out, next(iter(ready.values())).task.name) as folder:
        _write_config(folder, values, ready)
        return folder, _run_all(ready, folder, told)


def go_on(folder: Path, told: Told) -> dict[str, Any]:
    """Goes on with a run that was stopped; returns its summary."""
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder.")
    if not (folder / "config.toml").exists():
        why = "it is not the folder of a run"
        if (folder / "metrics.csv").exists():
            why = "a simulation of Python's goes on when it is called again with this `folder`"
        raise RunError(f"{folder} has no config.toml: {why}.")
    with runs.claimed(folder):
        if is_complete(folder):
            return _finished(folder)
        values = read_config(folder / "config.toml")
        import_files(values.get("imports", ()))
        return _run_all(prepare(values), folder, told)


def load_model(
    folder: Path | str, arm: str | None = None, seed: int | None = None, task: Task | None = None
) -> Any:
    """The model that a run has trained, with its final weights.

    Args:
      folder: of a run that is complete.
      arm: whose model; by default the first that is not full communication.
      seed: of which run; by default the lowest.
      task: what was learned; by default the task that the folder's `config.toml` names.

    Returns:
      What the task's `init` makes, such as an Equinox module: call it on inputs.
    """
    folder = Path(folder)
    if (folder / "config.toml").exists() and not is_complete(folder):
        raise RunError(f"{folder} was stopped before its end: `taciturn resume {folder}` goes on.")
    weights = runs.read_arrays(folder / "weights.safetensors")
    if task is None:
        plan = Plan(**read_config(folder / "config.toml"))
        task = load(plan.task, **plan.task_options)
    there = list(dict.fromkeys(name.rpartition("/seed")[0] for name in weights))
    arm = arm or next((name for name in there if name != FULL), FULL)
    own = {name.removeprefix(f"{arm}/"): array for name, array in weights.items()
           if name.startswith(f"{arm}/seed")}  # fmt: skip
    if not own:
        raise UnknownName("arm", arm, there)
    seeds = sorted({int(re.match(r"seed(\d+)", name)[1]) for name in own})  # type: ignore[index]
    seed = seeds[0] if seed is None else seed
    if seed not in seeds:
        raise InputError(f"`seed` must be one of {seeds}, got {seed}.")
    return model_of(task, seed, own)


def nudged_rate(lr: float) -> float:
    """A learning rate with another last bit."""
    return float(np.nextafter(np.asarray(lr, jnp.zeros(0).dtype), np.inf))


def is_complete(folder: Path) -> bool:
    return (folder / "summary.json").exists()


def prepare(values: Mapping[str, Any]) -> dict[str, Ready]:
    """Every point of a sweep, checked; of a plan without lists there is one, called ``."""
    open_task = functools.cache(load)  # the same task is the same program
    ready = {}
    for label, point in points(values).items():
        plan = Plan(**point)
        policies = policies_of(FULL if plan.arms is None else plan.arms)
        task = open_task(plan.task, **plan.task_options)
        if plan.devices is None and not plan.plain:  # others add up in another order
            plan = replace(plan, devices=len(jax.devices()))
        ready[label] = Ready(fill_in(plan, task, plan.plain, policies.values()), task, policies)
        if plan.noise_floor and "accuracy" not in metric_names(task):
            raise InputError(f"`noise_floor` needs accuracy, which task `{task.name}` has not.")
    return ready


def left_out(settings: Settings, task: Task, policies: Mapping[str, Policy]) -> dict[str, str]:
    """Why policies cannot be run: settings that do not fit the task, or a budget that cannot be
    kept; those that can are not in it."""
    try:
        fill_in(settings, task, policies=policies.values())
    except InputError as error:
        return dict.fromkeys(policies, str(error))
    return infeasible(task, policies, settings.cohort, settings.rounds)


def _write_config(folder: Path, values: Mapping[str, Any], ready: Mapping[str, Ready]) -> None:
    """Writes all settings, also those that were left out, and beside them what is imported.

    Of a sweep, those that were given: what is left out may be another value at every point.
    """
    plan = next(iter(ready.values())).plan
    config = asdict(plan) if len(ready) == 1 else {**values, "devices": plan.devices}
    if isinstance(data := config["data"], list):
        config["data"] = [str(path.absolute()) for path in data]
    elif data is not None:
        config["data"] = str(data.absolute())
    imported = []
    for path in config.get("imports", ()):
        (folder / "imported").mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "imported" / path.name)
        imported.append(f"imported/{path.name}")
    runs.write_toml(folder / "config.toml", config | {"imports": imported or None})


def _run_all(ready: Mapping[str, Ready], folder: Path, told: Told) -> dict[str, Any]:
    with saying_how(f"`taciturn resume {folder}` goes on."):
        if len(ready) == 1:
            return _run(next(iter(ready.values())), folder, told)
        found = {label: run_below(one, folder / label, told) for label, one in ready.items()}
    summary = {"run": str(folder), "points": found, "versions": versions()}
    runs.write_json(folder / "summary.json", summary)
    return summary


def run_below(ready: Ready, folder: Path, told: Told) -> dict[str, Any]:
    """Runs a plan in a folder within another one, from where it is; returns its summary."""
    with runs.claimed(folder):
        if not (folder / "config.toml").exists():
            _write_config(folder, {}, {"": ready})
        return _run(ready, folder, told)


def _run(ready: Ready, folder: Path, told: Told) -> dict[str, Any]:
    """Runs a plan in its folder from where it is, and writes down what came out."""
    if is_complete(folder):
        return _finished(folder)
    task, histories = ready.task, _follow(ready, folder, told)
    nudged = _nudged(ready, folder / NUDGED, told) if ready.plan.noise_floor else {}
    weights: dict[str, Any] = {}
    for arm, history in histories.items():
        named = named_weights(task, history.seeds, history.weights)
        weights |= {f"{arm}/{name}": array for name, array in named.items()}
    runs.write_arrays(folder / "weights.safetensors", weights)
    participation = {arm: history.participation for arm, history in histories.items()}
    names = getattr(task.clients, "names", ())
    runs.write_columns(folder / "clients.csv", *participation_table(participation, names))
    figures.draw(series.read(folder), folder / "report.png", task.name)
    # The last file: with it a run is complete.
    runs.write_json(folder / "summary.json", _summary(task, histories, nudged, folder))
    return _finished(folder)


def _finished(folder: Path) -> dict[str, Any]:
    """The summary of a run that is complete and needs its checkpoints no more."""
    remove_checkpoints(folder)
    remove_checkpoints(folder / NUDGED)
    return runs.read_json(folder / "summary.json")


def _follow(ready: Ready, folder: Path, told: Told) -> dict[str, History]:
    plan, task, policies = ready
    tells: list[Tell] = []

    def tell(done: Progress | Compiling) -> None:
        for one in tells:
            one(done)

    with contextlib.ExitStack() as stack:
        if not told.quiet:
            tells.append(stack.enter_context(Live(list(policies), plan)))
        if told.track is not None:
            tracker = Tracker(told.track, folder, asdict(plan), plan.all_seeds)
            tells.append(stack.enter_context(contextlib.closing(tracker)))
            # What is wrong shows before compiling. Of the plain loop, a seed is a run.
            for arm in () if plan.plain else policies:
                tracker.open(arm)
        return follow(task, policies, plan, tell, plan.plain, folder)


def _nudged(ready: Ready, folder: Path, told: Told) -> dict[str, History]:
    """The same program, seeds, cohorts and batches with another last bit in the learning rate."""
    plan, task, policies = ready
    again = {f"{arm} (nudged)": policy for arm, policy in policies.items()}
    folder.mkdir(exist_ok=True)
    nudged = Ready(replace(plan, lr=nudged_rate(plan.lr)), task, again)
    return dict(zip(policies, _follow(nudged, folder, Told(told.quiet)).values(), strict=True))


def _summary(
    task: Task, histories: Mapping[str, History], nudged: Mapping[str, History], folder: Path
) -> dict[str, Any]:
    """The first arm that is not full communication on top, and all arms below."""
    arms = {name: history.summary() for name, history in histories.items()}
    for name, again in nudged.items():
        own = arms[name]
        own["noise_floor"] = noise_floor(own["accuracy"], again.summary()["accuracy"])
    reference, *others = arms.values()
    if len(reference["accuracy"]) > 1:  # where numbers are predicted there is none
        for arm in others:
            arm["difference"] = difference(arm["accuracy"], reference["accuracy"])._asdict()
    about = {"run": str(folder), "tested_on": how_tested(task)}
    if (encode := getattr(task, "encode", None)) is not None:
        about["columns"] = str(encode)
    first = next((name for name in arms if name != FULL), FULL)
    return {"task": task.name, **arms[first], **about, "arms": arms, "versions": versions()}


@contextlib.contextmanager
def saying_how(how: str) -> Iterator[None]:
    """A block that says how to go on where it is stopped."""
    try:
        yield
    except Stopped as error:
        raise Stopped(f"{error} {how}", error.signal) from None
    except KeyboardInterrupt:
        raise Stopped(f"Stopped. {how}", signal.SIGINT) from None
    except WriteError as error:
        raise WriteError(f"{error} {how}") from None
