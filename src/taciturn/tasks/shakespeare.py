"""Shakespeare by speaking role: the next character, with the paper's LSTM."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.checks import choice, whole
from taciturn.data.shakespeare import LEAF_CHARACTERS, PADDING, read, read_leaf
from taciturn.models import CharLSTM
from taciturn.tasks.clients import Batch, Stored, numbered
from taciturn.tasks.task import Task, classification


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
    dataset = read(data)
    whose, place = numbered(dataset.rows)
    chosen = place < limit
    train = {key: array[chosen] for key, array in dataset.train.items()}
    rows, examples = np.minimum(dataset.rows, limit), None
    if weigh == "tokens":
        examples = np.bincount(whose[chosen], (train["y"] != PADDING).sum(1))
    return Task(
        "shakespeare",
        Stored.of(train, rows, examples, dataset.names),
        init=CharLSTM,
        loss=_loss,
        metrics=_metrics,
        test=dataset.test,
        test_clients=dataset.test_clients,
    )


def _cross_entropy(model: Any, batch: Batch, key: jax.Array | None) -> tuple[Any, Any, Any]:
    """Logits, targets, and the loss at every position."""
    logits = model(batch["x"].astype(jnp.int32), key)
    logits = logits.astype(jnp.result_type(logits, jnp.float32))
    targets = batch["y"].astype(jnp.int32)
    likely = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    return logits, targets, -likely[..., 0]


def _loss(model: Any, batch: Batch, key: jax.Array | None) -> jax.Array:
    return jnp.mean(_cross_entropy(model, batch, key)[2], axis=-1)


def _metrics(model: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
    logits, targets, losses = _cross_entropy(model, batch, None)
    real = targets != PADDING
    right = (jnp.argmax(logits, axis=-1) == targets) & real
    loss = jnp.mean(losses, axis=-1)
    return {
        "accuracy": (
            jnp.sum(right, axis=-1).astype(loss.dtype),
            jnp.sum(real, axis=-1).astype(loss.dtype),
        ),
        "loss": (loss, jnp.ones_like(loss)),
    }


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
        read_leaf(data, source),
        init=lambda key: CharLSTM(key, vocabulary=len(LEAF_CHARACTERS) + 1),
        loss=loss,
        metrics=metrics,
    )
