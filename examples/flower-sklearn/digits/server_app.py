"""The server: an ordinary Flower ServerApp with its strategy wrapped."""

from __future__ import annotations

import logging

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.task import data, fitted, start
from taciturn.flower import Taciturn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    policy, rounds = (context.run_config[name] for name in ("policy", "num-server-rounds"))
    strategy = Taciturn(FedAvg(fraction_evaluate=0.0), policy)  # <-- line 2 of 2
    strategy.start(grid, ArrayRecord(start()), num_rounds=rounds, evaluate_fn=evaluate)
    sent = sum(row["bytes_up"] + row["overhead_up"] for row in strategy.history)
    accuracy = strategy.history[-1]["accuracy"]
    logging.getLogger("flwr").info(f"accuracy {accuracy:.1%}, uploaded {sent / 1e3:.0f} kB")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    images, labels = data(None)
    return MetricRecord(
        {"accuracy": float(fitted(arrays.to_numpy_ndarrays()).score(images, labels))}
    )
