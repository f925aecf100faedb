"""The server: an ordinary Flower ServerApp with its strategy wrapped."""

from __future__ import annotations

import logging

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from glyphs_cnn.task import Net, data, test
from taciturn.flower import Taciturn

app = ServerApp()
TEST = 40  # a client that is never asked


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    folder = config["folder"] or None
    strategy = Taciturn(FedAvg(fraction_evaluate=0.0), folder=folder)  # <-- line 2 of 2

    torch.manual_seed(0)
    strategy.start(
        grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
    sent = sum(row["bytes_up"] + row["overhead_up"] for row in strategy.history)
    full = sum(row["bytes_up_full"] for row in strategy.history)
    accuracy = strategy.history[-1]["accuracy"]
    logging.getLogger("flwr").info(
        f"accuracy {accuracy:.1%}, uploaded {sent / 1e6:.1f} of {full / 1e6:.1f} MB"
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Tests on writers that nobody trains on."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    accuracy, loss = test(net, data(TEST))
    return MetricRecord({"accuracy": accuracy, "loss": loss})
