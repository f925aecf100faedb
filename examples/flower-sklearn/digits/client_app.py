"""The client: an ordinary Flower ClientApp with one mod."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.task import data, train
from taciturn.flower import speak

app = ClientApp(mods=[speak()])  # <-- line 1 of 2: may stay silent


@app.train()
def on_train(message: Message, context: Context) -> Message:
    images, labels = data(context.node_config["partition-id"])
    trained = train(message.content["arrays"].to_numpy_ndarrays(), images, labels)
    metrics = MetricRecord({"num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics})
    return Message(content, reply_to=message)
