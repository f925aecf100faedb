"""The server: an ordinary Flower ServerApp with its strategy wrapped."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from questions.task import Classifier, read, test
from taciturn.flower import Taciturn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    inner = FedAvg(
        fraction_train=config["asked"] / config["clients"], fraction_evaluate=0.0,
        min_train_nodes=config["asked"], min_available_nodes=config["clients"],
    )  # fmt: skip
    folder = config["folder"] or None
    strategy = Taciturn(inner, config["policy"], folder=folder)  # <-- line 2 of 2

    torch.manual_seed(config["seed"])
    model = Classifier(config["lora-rank"])
    questions = read(Path(config["data"], "test.csv"))

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """The accuracy on questions that nobody trains on."""
        if server_round % config["test-every"]:
            return None
        model.load_state_dict(arrays.to_torch_state_dict(), strict=False)
        return MetricRecord({"accuracy": test(model, questions)})

    strategy.start(
        grid,
        initial_arrays=ArrayRecord(model.trained()),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
    sent = sum(row["bytes_up"] + row["overhead_up"] for row in strategy.history)
    full = sum(row["bytes_up_full"] for row in strategy.history)
    logging.getLogger("flwr").info(f"uploaded {sent / 1e6:.1f} of {full / 1e6:,.0f} MB")
