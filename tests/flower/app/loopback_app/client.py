"""The client: two lines of it are Taciturn's, the rest is for what can go wrong."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod

from loopback_app import data
from taciturn.flower import speak

LAST = len(data.SCALES) - 1


def clipping(message: Message, context: Context, call_next) -> Message:
    """Flower's clipping mod, where the run asks for it."""
    if context.run_config["clip"] > 0:
        return fixedclipping_mod(message, context, call_next)
    return call_next(message, context)


def tampering(message: Message, context: Context, call_next) -> Message:
    """What a broken or malicious node does after all mods."""
    reply = call_next(message, context)
    kind = context.run_config["garbage"]
    if not kind or context.node_config["partition-id"] != LAST:
        return reply
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    metrics = dict(reply.content["metrics"])
    if kind == "keys":
        arrays = {"c": arrays["b"]}
    elif kind == "shape":
        arrays["b"] = arrays["b"][:-1]
    elif kind == "nan":
        arrays["b"] = np.full_like(arrays["b"], np.nan)
    elif kind == "norm":
        arrays["b"] = arrays["b"] + np.float32(1e6)
    elif kind == "metrics":
        metrics["more"] = 1.0
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    return Message(
        RecordDict({"arrays": record, "metrics": ConfigRecord(metrics)}), reply_to=message
    )


app = ClientApp(mods=[tampering, speak(), clipping])


@app.train()
def train(message: Message, context: Context) -> Message:
    k = context.node_config["partition-id"]
    slow, now = context.run_config["slow"], message.content["config"]["server-round"]
    if k == LAST and 0 < slow <= now:
        Path(context.run_config["out"]).with_suffix(".asleep").touch()
        time.sleep(120)
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    trained = ArrayRecord({name: Array(a) for name, a in data.train(model, k).items()})
    metrics = MetricRecord({"num-examples": data.EXAMPLES[k]})
    return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    raise RuntimeError("Nobody asks for evaluation here.")
