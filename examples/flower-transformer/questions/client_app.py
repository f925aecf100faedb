"""The client: an ordinary Flower ClientApp with one mod."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from questions.task import Classifier, read, split, train
from taciturn.flower import speak

torch.set_num_threads(1)

app = ClientApp(mods=[speak()])  # <-- line 1 of 2: a few kilobytes instead of the model


@functools.cache
def model_of(rank: int) -> Classifier:
    """Read once by each process; the weights that are trained come with every request."""
    return Classifier(rank)


@app.train()
def on_train(message: Message, context: Context) -> Message:
    config, k = context.run_config, int(context.node_config["partition-id"])
    torch.manual_seed(hash((config["seed"], k, message.content["config"]["server-round"])))
    model = model_of(config["lora-rank"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)
    path = Path(config["data"], "train.csv")
    texts, intents = read(path)
    rows = split(path, config["clients"], config["seed"])[k][: config["examples"]]
    own = [texts[i] for i in rows], intents[rows]
    loss = train(model, own, config["batch-size"], config["learning-rate"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(rows)})
    content = RecordDict({"arrays": ArrayRecord(model.trained()), "metrics": metrics})
    return Message(content, reply_to=message)
