"""EMNIST by writer: which of 62 characters it is, with the paper's CNN."""

from pathlib import Path

from taciturn.data.emnist import read
from taciturn.models import EmnistCNN
from taciturn.tasks.task import Task, classification, unit


def emnist(data: str | Path | None = None, source: str = "files") -> Task:
    """Handwriting by writer, 62 characters, with the paper's CNN.

    Args:
      data: the folder of `fed_emnist_train.h5` and `fed_emnist_test.h5`, or of LEAF's JSON; by
        default TACITURN_DATA, the user's cache folder, or a download.
      source: `files`, or `huggingface` for `flwrlabs/femnist`, which has no test split: a tenth of
        every writer is held out.
    """
    loss, metrics = classification(lambda model, x, key: model(unit(x), key))
    return Task.of("emnist", read(data, source), init=EmnistCNN, loss=loss, metrics=metrics)
