"""The server: writes the final model and what happened to the file `out`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp import strategy as flower

from loopback_app import data
from taciturn.flower import Taciturn
from taciturn.flower.protocol import read_said

app = ServerApp()


class Recording(Taciturn):
    """Keeps the codes that travel, by round and node, with the norm and the examples."""

    codes: dict[str, np.ndarray]

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.codes = getattr(self, "codes", {})
        for reply in replies:
            said, name = read_said(reply.content), f"{server_round}/{reply.metadata.src_node_id}"
            self.codes[f"{name}/code"] = np.frombuffer(said.code, np.uint8)
            self.codes[f"{name}/numbers"] = np.array(
                [said.metrics["num-examples"], said.report.norm]
            )
        return super().aggregate_train(server_round, replies)


@app.main()
def main(grid: Grid, context: Context) -> None:
    run = context.run_config
    nodes = run["nodes"]
    options = {"fraction_evaluate": 0.0, "min_train_nodes": nodes, "min_available_nodes": nodes}
    inner = getattr(flower, run["inner"])(**options)
    strategy = inner
    if run["policy"]:
        kind = Recording if run["record"] else Taciturn
        strategy = kind(inner, run["policy"], folder=run["folder"] or None)
    config = ConfigRecord({"clipping_norm": run["clip"]} if run["clip"] > 0 else {})
    start = ArrayRecord({name: Array(array) for name, array in data.start().items()})
    result = strategy.start(
        grid, start, num_rounds=run["rounds"], timeout=run["timeout"], train_config=config
    )
    out = Path(run["out"])
    np.savez(out, **{name: array.numpy() for name, array in result.arrays.items()})
    metrics = {t: dict(record) for t, record in result.train_metrics_clientapp.items()}
    if run["record"]:
        np.savez(out.with_suffix(".codes.npz"), **strategy.codes, seed=strategy.seed)
    out.with_suffix(".json").write_text(json.dumps(metrics))
