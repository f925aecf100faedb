"""The client: two lines of it are Taciturn's."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from loopback_app import data
from taciturn.flower import speak

app = ClientApp(mods=[speak()])


@app.train()
def train(message: Message, context: Context) -> Message:
    k = context.node_config["partition-id"]
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    trained = ArrayRecord({name: Array(a) for name, a in data.train(model, k).items()})
    metrics = MetricRecord({"num-examples": data.EXAMPLES[k]})
    return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    raise RuntimeError("Nobody asks for evaluation here.")
