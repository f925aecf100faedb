"""How far one reply can move the mean: bounds on what it weighs and how long its update is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from logging import INFO

from flwr.app import MetricRecord
from flwr.supercore import log

from taciturn.errors import InputError
from taciturn.flower.replies import Reply

_LEAST = 2.0  # what a limit shrinks to, and times the median what a silent reply weighs at most


@dataclass(frozen=True)
class Limits:
    """The bounds of a federation.

    Attributes:
      weight: a reply that weighs more than so many times the median of all weighs that.
      norm: an update that is longer than so many times the upper quartile is made as short as that.
      alone: whether the mean is over speakers alone. Each is then heard louder the fewer they are,
        and both limits shrink with the share that speaks, to 2 at the least.
      loss: the metric that must not be negative, where the mean is weighted by powers of it.
    """

    weight: float = math.inf
    norm: float = math.inf
    alone: bool = False
    loss: str | None = None

    def check_loss(self, reply: Reply) -> None:
        """Raises where the power of a reply's loss would be no number, and the mean with it."""
        found = 0.0 if self.loss is None else reply.metrics.get(self.loss, 0.0)
        if isinstance(found, list) or not 0 <= found < math.inf:
            raise InputError(f"`{self.loss}` must be 0 or more, got {found!r}.")

    def bound_weights(self, found: Sequence[Reply], weighted_by: str) -> None:
        """Lets no reply weigh more than it may beside the (lower) median, and no silent one more
        than twice that: what stands in for it is nothing that it has said.

        Who spoke weighs n/p, and is measured by what all would weigh if they had spoken; who is
        silent weighs n, and is measured by all n.

        Args:
          found: all replies.
          weighted_by: the metric that has n_k.
        """
        if math.isinf(self.weight) or not found:
            return
        speaking = _lower_median([reply.examples / reply.probability for reply in found])
        silent = _lower_median([reply.examples for reply in found])
        limit = self._shrunk(self.weight, sum(reply.spoke for reply in found), len(found))
        for reply in found:
            most = limit * speaking if reply.spoke else min(limit, _LEAST) * silent
            if reply.weight > most:
                log(INFO, "Taciturn: node %d weighs %g, which is too much beside the median: it "
                    "counts %g.", reply.node, reply.weight, most)  # fmt: skip
                reply.examples = most * reply.probability if reply.spoke else most
                reply.metrics = MetricRecord(dict(reply.metrics) | {weighted_by: reply.examples})

    def bound_norms(self, speakers: Sequence[Reply], silent: Sequence[float]) -> bool:
        """Sets the `scale` of updates that are too long, and says whether there are any.

        Args:
          speakers: those whose updates are summed.
          silent: the norms of the others.
        """
        most = self.longest(speakers, silent)
        for reply in speakers:
            if reply.length > most:
                log(INFO, "Taciturn: the update of node %d has the norm %g, which is too long "
                    "beside the upper quartile: it is made as short as %g.",
                    reply.node, reply.length, most)  # fmt: skip
                reply.scale = most / reply.length
        return any(reply.scale != 1 for reply in speakers)

    def longest(self, speakers: Sequence[Reply], silent: Sequence[float]) -> float:
        """How long an update, or what stands in for one, can be; arguments as above."""
        if math.isinf(self.norm):
            return math.inf
        limit = self._shrunk(self.norm, len(speakers), len(speakers) + len(silent))
        said = [reply.length for reply in speakers if reply.length > 0]
        others = [norm for norm in silent if norm > 0]
        if said:
            return limit * _upper_quartile(said, others, len(silent) - len(others))
        # With nobody to measure them by, the silent are measured by each other.
        return limit * _lower_median(others) if others else math.inf

    def _shrunk(self, limit: float, speakers: int, everyone: int) -> float:
        share = speakers / everyone if self.alone and everyone else 1.0
        return max(min(_LEAST, limit), limit * share)


def _lower_median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _upper_quartile(speakers: Sequence[float], silent: Sequence[float], more: int) -> float:
    """That of those who speak; where they are fewer than half, of the longer half of all.

    The quartile and not the median, because few may have much to say, and be honest. Who speaks
    alone is measured by those who are silent. Who has nothing at all to say measures nobody; so
    many `more` are silent for that reason.
    """
    needed = (len(speakers) + len(silent) + more + 1) // 2 - len(speakers)
    norms = sorted([*speakers, *sorted(silent, reverse=True)[: max(needed, 0)]])
    return norms[3 * (len(norms) - 1) // 4]
