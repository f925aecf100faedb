"""The EMNIST CNN in Flower's own simulation: a ServerApp with FedAvg, ClientApps on Ray actors.

Flower has as many nodes here as a cohort has clients, and node i trains client i of the round's
cohort: the same clients as everywhere, and the fewest nodes that Flower must keep. Every actor
holds the data, and keeps its model from one message to the next.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import torch
from common import (
    BATCH,
    COHORT,
    Data,
    Laps,
    Plan,
    arguments,
    examples_of,
    load_data,
    load_plan,
    plan_file,
    report,
    versions,
)
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_models import EmnistCNN, evaluate, train_locally, trained

client = ClientApp()


@functools.cache
def _setting(data: str, plan: str, seed: int, dropout: bool) -> tuple[Data, Plan, EmnistCNN]:
    """What an actor keeps from one message to the next."""
    torch.set_num_threads(1)
    torch.manual_seed(1000 * seed + os.getpid() % 1000)
    return (
        load_data(Path(data), "cnn"),
        load_plan(plan_file(Path(plan), "cnn", seed)),
        EmnistCNN(dropout),
    )


@client.train()
def train(message: Message, context: Context) -> Message:
    config: Any = message.content["config"]
    data, plan, model = _setting(config["data"], config["plan"], config["seed"], config["dropout"])
    arrays: Any = message.content["arrays"]
    model.load_state_dict(arrays.to_torch_state_dict())
    t, slot = config["server-round"] - 1, int(context.node_config["partition-id"])
    which = plan.cohorts[t, slot]
    n, start = int(data.sizes[which]), int(data.starts[which])
    rows = start + plan.order(t, slot, n)
    x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows]).long()
    train_locally(model, x, y, BATCH["cnn"])
    content = RecordDict(
        {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": n})}
    )
    return Message(content=content, reply_to=message)


def main() -> None:
    options = arguments(__doc__ or "")
    total = options.warmup + options.rounds
    data = load_data(options.data, "cnn")
    plan = load_plan(plan_file(options.plan, "cnn", options.seed))
    model = EmnistCNN()
    model.start_from(plan.weights)
    laps = Laps()
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        def after_round(round: int, arrays: ArrayRecord) -> None:
            laps.mark()
            if round == total:
                model.load_state_dict(arrays.to_torch_state_dict())

        FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=COHORT).start(
            grid,
            ArrayRecord(model.state_dict()),
            num_rounds=total,
            train_config=ConfigRecord(
                {
                    "data": str(options.data.resolve()),
                    "plan": str(options.plan.resolve()),
                    "seed": options.seed,
                    "dropout": not options.no_dropout,
                }
            ),
            evaluate_fn=after_round,
        )

    # One actor per core with one thread each: on two cores faster than one actor with two threads.
    run_simulation(
        server,
        client,
        num_supernodes=COHORT,
        backend_config={
            "init_args": {"num_cpus": options.threads, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    torch.set_num_threads(options.threads)
    report(
        options.out,
        side="Flower simulation",
        seconds=laps.seconds[options.warmup :],
        examples=examples_of(data, plan, range(options.warmup, total)),
        weights=sum(w.numel() for w in trained(model)),
        versions=versions("flwr", "ray", "torch", "numpy"),
        device=None,
        **evaluate(model, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y).long()),
    )


if __name__ == "__main__":
    # Ray's actors import what they run by name, so that it keeps its cache.
    import flower_side

    flower_side.main()
