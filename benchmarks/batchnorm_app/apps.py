"""What `benchmarks/batchnorm.py --wire` runs: both sides of a federation."""

import json
from pathlib import Path

import batchnorm
import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from taciturn.flower import Taciturn, speak

client = ClientApp(mods=[speak()])
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    k, round = context.node_config["partition-id"], message.content["config"]["server-round"]
    order = np.random.default_rng((k, round)).permutation(batchnorm.EXAMPLES)
    arrays, metrics = batchnorm.trained(
        context.run_config["network"], message.content["arrays"], k, order
    )
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    run = context.run_config
    strategy = batchnorm.STRATEGIES[run["strategy"]]()
    strategy.min_train_nodes = strategy.min_available_nodes = run["nodes"]
    if run["policy"]:
        strategy = Taciturn(strategy, run["policy"], seed=0)
    start, tests = batchnorm.first(run["network"], 0), batchnorm.Tests(run["network"])
    strategy.start(grid, start, num_rounds=run["rounds"], evaluate_fn=tests)
    found = {"by_round": tests.found[1:], "broken": tests.broken}
    Path(run["out"]).write_text(json.dumps(found))
