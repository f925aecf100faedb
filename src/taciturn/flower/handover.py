"""What the inner strategy is given: complete, ordinary replies, with something for the silent."""

from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from taciturn.core import server
from taciturn.core.arrays import in_blocks
from taciturn.core.policy import Policy
from taciturn.core.server import Memory
from taciturn.core.tally import Tally
from taciturn.flower import records, replies, sums
from taciturn.flower.hearing import Heard, Round
from taciturn.flower.records import Layout
from taciturn.flower.replies import Details


@dataclass(frozen=True)
class Handover:
    """Makes the replies for a strategy.

    Attributes:
      inner: the strategy.
      policy: rule, stand-in and codec.
      layout: that of the model.
      weighted_by: the metric that says what a reply weighs.
      name: that of the array record of replies when nobody spoke.
    """

    inner: Strategy
    policy: Policy
    layout: Layout
    weighted_by: str
    name: str

    def of_everyone(self, heard: Heard) -> Details:
        """The mean of what all report and always send, in silence too."""
        everyone = heard.speakers + heard.silent
        return replies.mean([replies.details(reply, self.layout) for reply in everyone])

    def as_one(
        self, heard: Heard, sent: ArrayRecord, whole: Details, mean: np.ndarray
    ) -> list[Message]:
        """The mean of all clients as one reply, for a strategy that would take it anyway.

        Args:
          heard: the replies, whose arrays are given up.
          sent: the model before the round.
          whole: from `of_everyone`.
          mean: the mean update.
        """
        pattern, name = (heard.speakers or heard.silent)[0].message, self._name(heard)
        whole.metrics[self.weighted_by] = whole.examples
        # Nothing but their sum is needed of the replies; a cohort's memory is worth having back.
        for reply in heard.speakers:
            reply.weights = None
            for record in reply.message.content.array_records.values():
                record.clear()
        weights = records.moved(self.layout, sent, mean)
        return [replies.write(pattern, name, sent, weights, whole)]

    def metrics_of_each(self, heard: Heard) -> list[RecordDict]:
        """What each client reported, for functions that put metrics together."""
        everyone = sorted(heard.speakers + heard.silent, key=lambda reply: reply.node)
        return [RecordDict({reply.name: reply.metrics}) for reply in everyone]

    def one_by_one(self, heard: Heard, now: Round, tallied: Tally, memory: Memory) -> list[Message]:
        """Everyone who spoke, and the silent as one reply with their summed weight.

        Args:
          heard, now, tallied: the round.
          memory: that before the round.
        """
        sent = now.model
        name, layout, handed = self._name(heard), self.layout, []
        for reply in heard.speakers:
            arrays = reply.arrays
            if reply.weights is not None and (reply.scale != 1 or now.model is not now.sent):
                reply.update = sums.difference(layout.views(now.sent), reply.weights)
                reply.update *= np.float32(reply.scale)
            if reply.update is not None:
                arrays, reply.update = records.moved(layout, sent, reply.update), None
            part = replies.details(reply, layout)
            if reply.probability < 1:  # it speaks for those who might have
                part.metrics = MetricRecord(dict(part.metrics) | {self.weighted_by: reply.weight})
            handed.append(replies.write(reply.message, name, sent, arrays, part))
        if not self._stands_in(tallied):
            return handed
        weights = records.moved(layout, sent, self._forecast(tallied, memory))
        whole, known = self._silent_details(heard, tallied), heard.silent or heard.speakers
        if isinstance(self.inner, flower.QFedAvg):
            # It weighs clients by their loss, each for itself. They share the arrays' memory.
            each = [(reply, replies.details(reply, layout)) for reply in heard.silent]
            each += [(known[0], whole)] * int(tallied.n_absent)
        else:
            whole.metrics[self.weighted_by] = whole.examples
            each = [(known[0], whole)]
        for reply, part in each:
            handed.append(replies.write(reply.message, name, sent, weights, part))
        return handed

    def unmoved(self, heard: Heard, model: ArrayRecord) -> list[Message]:
        """A reply for each silent client: the model as it is. They share the arrays' memory."""
        name, layout = self._name(heard), self.layout
        weights = {layer.name: model[layer.name] for layer in layout.layers}
        return [
            replies.write(reply.message, name, model, weights, replies.details(reply, layout))
            for reply in heard.silent
        ]

    def _stands_in(self, tallied: Tally) -> bool:
        return self.policy.stand_in.counts and bool(tallied.examples_silent > 0)

    def _forecast(self, tallied: Tally, memory: Memory) -> np.ndarray:
        """What stands in for the silent, a flat vector."""
        weighed, policy = server.weigh(self.policy, tallied), self.policy
        everyone = tallied.examples_silent
        forecast: np.ndarray = in_blocks(
            lambda pair: (server.stood_in(policy, pair[1], weighed) / everyone + pair[0], pair[1]),
            (np.zeros_like(tallied.spoken), memory.stand_in), donate=True,
        )[0]  # fmt: skip
        return forecast

    def _silent_details(self, heard: Heard, tallied: Tally) -> Details:
        """The silent and the absent as one. Of the absent it is assumed that they are alike."""
        known = [replies.details(reply, self.layout) for reply in heard.silent or heard.speakers]
        return replies.mean(known, float(tallied.examples_silent))

    def _name(self, heard: Heard) -> str:
        found = (next(iter(reply.message.content.array_records)) for reply in heard.speakers)
        return str(next(found, self.name))
