"""Taciturn's side, through its public functions: one run, or 35 side by side."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import (
    BATCH,
    CLIP,
    COHORT,
    EPOCHS,
    LR,
    Data,
    Plan,
    arguments,
    examples_of,
    load_data,
    load_plan,
    plan_file,
    report,
    save_plan,
    versions,
)

import taciturn
from taciturn.models import CharLSTM, EmnistCNN
from taciturn.progress import Progress
from taciturn.sim import devices

ARMS = (
    "full",
    "adaptive+ou",
    "adaptive+zero",
    "adaptive+ignore",
    "random:0.5+ou",
    "random:0.5+zero",
    "random:0.5+ignore",
)
SEEDS = 5


def make_task(name: str, data: Data, dropout: bool) -> taciturn.Task:
    """The CNN or the LSTM on the benchmark's data."""

    def logits(model: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        return model(x, key if dropout else None)

    loss, metrics = taciturn.classification(logits)
    if name == "lstm":
        # One number a sequence: the mean over its 80 positions.
        per_letter, per_letter_metrics = loss, metrics

        def loss(model: Any, batch: Any, key: jax.Array) -> jax.Array:
            return per_letter(model, batch, key).mean(-1)

        def metrics(model: Any, batch: Any) -> dict[str, tuple[jax.Array, jax.Array]]:
            found = per_letter_metrics(model, batch)
            return {key: (v.mean(-1), w.mean(-1)) for key, (v, w) in found.items()}

    return taciturn.Task(
        f"peers-{name}",
        taciturn.Stored.of({"x": jnp.asarray(data.x), "y": jnp.asarray(data.y)}, data.sizes),
        init=EmnistCNN if name == "cnn" else CharLSTM,
        loss=loss,
        metrics=metrics,
        test={"x": data.test_x, "y": data.test_y},
        batch=BATCH[name],
        epochs=EPOCHS,
        lr=LR,
        clip=CLIP,
    )


def export(name: str, data: Data, seed: int, rounds: int) -> Plan:
    """What Taciturn will draw for this seed, so that the others do the same work."""
    from taciturn.sim import draws

    keys = draws.run_keys(seed)
    model = (EmnistCNN if name == "cnn" else CharLSTM)(keys.init)
    weights = {
        jax.tree_util.keystr(path).removeprefix("."): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(model)
    }
    longest = int(data.sizes.max())
    sizes = jnp.asarray(data.sizes)

    @jax.jit
    def one(t: jax.Array) -> tuple[jax.Array, jax.Array]:
        round_keys = draws.round_keys(keys, t)
        cohort = draws.cohort(round_keys, len(sizes), COHORT)

        def order(slot: jax.Array, n: jax.Array) -> jax.Array:
            # Beyond a client's own examples there is nothing to shuffle, nor is it read.
            index = jnp.minimum(jnp.arange(longest), n - 1)
            return draws.shuffled(round_keys, slot, jnp.int32(0), n, index)

        return cohort, jax.vmap(order)(jnp.arange(COHORT), sizes[cohort])

    drawn = [one(jnp.int32(t)) for t in range(rounds)]
    cohorts, orders = (np.stack([np.asarray(part[i]) for part in drawn]) for i in range(2))
    return Plan(weights, cohorts.astype(np.int32), orders.astype(np.int16))


def seconds_of(histories: dict[str, Any], together: bool) -> np.ndarray:
    """Wall time of each round of all runs.

    Arms that ran as one program share its clock and count once; where the runs of an arm came one
    after another, the history has the mean of one.
    """
    clocks = {tuple(h.seconds): h.seconds * (1 if together else len(h.seeds))
              for h in histories.values()}  # fmt: skip
    return np.sum(list(clocks.values()), axis=0)


def main() -> None:
    options = arguments(
        __doc__ or "",
        task=lambda p: p.add_argument("--task", choices=("cnn", "lstm"), default="cnn"),
        many=lambda p: p.add_argument("--side-by-side", action="store_true", help="35 runs"),
        rounds=lambda p: p.add_argument(
            "--loss-rounds", type=int, help="test after so many rounds, unless after the timed ones"
        ),
        export=lambda p: p.add_argument(
            "--export", type=int, metavar="ROUNDS", help="write the plan and stop"
        ),
        extra=lambda p: p.add_argument(
            "--setting", action="append", default=[], metavar="NAME=VALUE",
            help="passed on to `taciturn.compare`, such as precision=tf32"),
    )  # fmt: skip
    devices.use_cores()
    data = load_data(options.data, options.task)
    path = plan_file(options.plan, options.task, options.seed)
    if options.export:
        save_plan(path, export(options.task, data, options.seed, options.export))
        return

    task = make_task(options.task, data, not options.no_dropout)
    settings = {"cohort": COHORT} | dict(_setting(text) for text in options.setting)
    arms = {name: name for name in (ARMS if options.side_by_side else ARMS[:1])}
    seeds = range(SEEDS) if options.side_by_side else (options.seed,)
    total = options.warmup + options.rounds
    seen: list[Any] = []
    if options.side_by_side:
        # Nobody looks at these scores, and 35 models take long to test; no side's clock runs then.
        task = replace(task, test=jax.tree.map(lambda a: a[:20], task.test))
    histories = taciturn.compare(
        task,
        arms,
        rounds=total,
        seeds=seeds,
        evaluate_every=total,
        progress=lambda event: seen.append(event) if isinstance(event, Progress) else None,
        **settings,
    )
    history = histories[ARMS[0]]
    if not options.side_by_side and options.loss_rounds not in (None, total):
        history = taciturn.simulate(
            task,
            ARMS[0],
            rounds=options.loss_rounds,
            seeds=seeds,
            evaluate_every=options.loss_rounds,
            **settings,
        )
    tested = {
        name: None if options.side_by_side else float(getattr(history, name)[0, -1])
        for name in ("loss", "accuracy")
    }
    together = all(event.seed is None for event in seen)
    timed = range(options.warmup, total)
    if options.side_by_side:
        plans = [export(options.task, data, seed, total) for seed in seeds]
        of_seeds = [examples_of(data, plan, timed) for plan in plans]
        examples = [len(ARMS) * sum(n) for n in zip(*of_seeds, strict=True)]
    else:
        examples = examples_of(data, load_plan(path), timed)

    device = jax.devices()[0]
    report(
        options.out,
        side="Taciturn, 35 runs" if options.side_by_side else "Taciturn",
        seconds=seconds_of(histories, together)[options.warmup :].tolist(),
        examples=examples,
        runs=len(arms) * len(seeds),
        weights=next(iter(histories.values())).size,
        versions=versions("taciturn", "jax", "jaxlib", "optax", "equinox", "numpy"),
        device=device.device_kind if device.platform != "cpu" else None,
        **tested,
    )


def _setting(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    try:
        return name, int(value)
    except ValueError:
        return name, value


if __name__ == "__main__":
    main()
