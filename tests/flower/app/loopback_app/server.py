"""The server: writes the final model and what happened to the file `out`."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp import strategy as flower

from loopback_app import data
from taciturn.flower import Taciturn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run = context.run_config
    nodes = run["nodes"]
    options = {"fraction_evaluate": 0.0, "min_train_nodes": nodes, "min_available_nodes": nodes}
    inner = strategy = flower.FedAvg(**options)
    if run["policy"]:
        strategy = Taciturn(inner, run["policy"], folder=run["folder"] or None)
    start = ArrayRecord({name: Array(array) for name, array in data.start().items()})
    result = strategy.start(grid, start, num_rounds=run["rounds"], timeout=run["timeout"])
    out = Path(run["out"])
    np.savez(out, **{name: array.numpy() for name, array in result.arrays.items()})
    metrics = {t: dict(record) for t, record in result.train_metrics_clientapp.items()}
    out.with_suffix(".json").write_text(json.dumps(metrics))
