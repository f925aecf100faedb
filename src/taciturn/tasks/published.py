"""The published sets that come by client, with the paper's models: EMNIST and Shakespeare."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.checks import choice, whole
from taciturn.data import emnist as emnist_data
from taciturn.data import shakespeare as shakespeare_data
from taciturn.data.shakespeare import LEAF_CHARACTERS, PADDING
from taciturn.models import CharLSTM, EmnistCNN
from taciturn.tasks.clients import Batch, Stored, numbered
from taciturn.tasks.task import Task, classification, cross_entropy, unit


def emnist(data: str | Path | None = None, source: str = "files") -> Task:
    """Handwriting by writer, 62 characters, with the paper's CNN.

    Args:
      data: the folder of `fed_emnist_train.h5` and `fed_emnist_test.h5`, or of LEAF's JSON; by
        default TACITURN_DATA, the user's cache folder, or a download.
      source: `files`, or `huggingface` for `flwrlabs/femnist`, which has no test split: a tenth of
        every writer is held out.
    """
    loss, metrics = classification(lambda model, x, key: model(unit(x), key))
    return Task.of(
        "emnist", emnist_data.read(data, source), init=EmnistCNN, loss=loss, metrics=metrics
    )


def shakespeare(data: str | Path | None = None, limit: int = 128, weigh: str = "tokens") -> Task:
    """Lines by speaking role, every next character, with the paper's LSTM.

    The loss of a sequence is its mean over all 80 positions; accuracy is over tokens, padding left
    out.

    Args:
      data: the folder of `shakespeare_train.h5` and `shakespeare_test.h5`; by default
        TACITURN_DATA, the user's cache folder, or a download.
      limit: the most training sequences of a role; the rest of a longer one is left out.
      weigh: n_k is the number of `tokens`, as in the author's code, or of `sequences`.
    """
    limit = whole("limit", limit)
    weigh = choice("weigh", weigh, ("tokens", "sequences"))
    dataset = shakespeare_data.read(data)
    whose, place = numbered(dataset.rows)
    chosen = place < limit
    train = {key: array[chosen] for key, array in dataset.train.items()}
    rows, examples = np.minimum(dataset.rows, limit), None
    if weigh == "tokens":
        examples = np.bincount(whose[chosen], (train["y"] != PADDING).sum(1))

    def predicted(model: Any, batch: Batch, key: Any) -> tuple[jax.Array, jax.Array]:
        """The most likely character at every position, and the loss of each sequence."""
        logits = model(batch["x"].astype(jnp.int32), key)
        losses = cross_entropy(logits, batch["y"].astype(jnp.int32))
        return jnp.argmax(logits, axis=-1), jnp.mean(losses, axis=-1)

    def metrics(model: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        found, loss = predicted(model, batch, None)
        targets = batch["y"].astype(jnp.int32)
        real = targets != PADDING
        right = (found == targets) & real
        right, count = (jnp.sum(which, axis=-1).astype(loss.dtype) for which in (right, real))
        return {"accuracy": (right, count), "loss": (loss, jnp.ones_like(loss))}

    return Task(
        "shakespeare",
        Stored.of(train, rows, examples, dataset.names),
        init=CharLSTM,
        loss=lambda model, batch, key: predicted(model, batch, key)[1],
        metrics=metrics,
        test=dataset.test,
        test_clients=dataset.test_clients,
    )


def shakespeare_leaf(data: str | Path | None = None, source: str = "files") -> Task:
    """LEAF's Shakespeare: 80 characters and the one that follows. Not the paper's task.

    Args:
      data: the folder of LEAF's JSON.
      source: `files`, or `huggingface` for `flwrlabs/shakespeare`, which has no test split: a tenth
        of every role is held out.
    """
    loss, metrics = classification(lambda model, x, key: model(x.astype(jnp.int32), key)[:, -1])
    return Task.of(
        "shakespeare-leaf",
        shakespeare_data.read_leaf(data, source),
        init=lambda key: CharLSTM(key, vocabulary=len(LEAF_CHARACTERS) + 1),
        loss=loss,
        metrics=metrics,
    )
