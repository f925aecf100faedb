"""The client: two lines of it are Taciturn's."""

import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from loopback_app import data
from taciturn.flower import speak

LAST = len(data.SCALES) - 1


app = ClientApp(mods=[speak()])


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
