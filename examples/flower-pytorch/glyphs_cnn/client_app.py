"""The client: an ordinary Flower ClientApp with one mod."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from glyphs_cnn.task import Net, data, train
from taciturn.flower import speak

torch.set_num_threads(1)

app = ClientApp(mods=[speak()])  # <-- line 1 of 2: may stay silent


@app.train()
def on_train(message: Message, context: Context) -> Message:
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    mine, config = data(context.node_config["partition-id"]), context.run_config
    loss = train(net, mine, config["local-epochs"], config["batch-size"], config["learning-rate"])
    content = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"train_loss": loss, "num-examples": len(mine)}),
        }
    )
    return Message(content, reply_to=message)
