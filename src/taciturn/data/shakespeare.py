"""Shakespeare by speaking role: TFF's snippets and LEAF's windows, read and tokenised.

The two are different tasks. TFF has whole snippets: the paper predicts every character of an
80-character window. LEAF and the Hugging Face Hub have 80 characters and the one that follows.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import choice
from taciturn.data import layouts, sources
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, Examples, collect
from taciturn.errors import DataError

# The order is that of TFF's tutorial, which the paper's predecessors took over.
CHARACTERS = (
    "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
)
PADDING, UNKNOWN, BEGIN, END = 0, *range(len(CHARACTERS) + 1, len(CHARACTERS) + 4)
VOCABULARY = len(CHARACTERS) + 4
LENGTH = 80

LEAF_CHARACTERS = (
    "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
)


def _codes(characters: str, first: int, unknown: int) -> np.ndarray:
    """The token of every byte."""
    table = np.full(256, unknown, np.uint8)
    table[np.frombuffer(characters.encode(), np.uint8)] = np.arange(first, first + len(characters))
    return table


_TOKENS = _codes(CHARACTERS, 1, UNKNOWN)
_LEAF_TOKENS = _codes(LEAF_CHARACTERS, 0, len(LEAF_CHARACTERS))


def read(data: str | Path | None = None) -> Dataset:
    """The sequences of every role, all of them: `x` and `y` are uint8 tokens, n × 80."""
    files = sources.find_or_fetch("shakespeare", data)
    return cached("shakespeare", files, lambda: read_tff(*files))


def read_tff(train: Path, test: Path) -> Dataset:
    """The roles of TFF's two files, and how many snippets there are in each."""
    splits = [list(layouts.read_tff(path, ("snippets",), _from_snippets)) for path in (train, test)]
    snippets = [sum(int((role["x"][:, 0] == BEGIN).sum()) for _, role in split) for split in splits]
    counts = {"train snippets": snippets[0], "test snippets": snippets[1]}
    return collect(train, splits[0], splits[1], counts)


def _from_snippets(snippets: np.ndarray) -> Examples:
    if snippets.dtype.kind not in "SO" or snippets.ndim != 1:
        seen = f"{snippets.dtype} of shape {snippets.shape}"
        raise DataError(f"snippets must be a list of bytes, got {seen}.")
    texts = [text.encode() if isinstance(text, str) else text for text in snippets.tolist()]
    if not all(isinstance(text, bytes) for text in texts):
        raise DataError("snippets must be bytes.")
    joined = np.concatenate([np.zeros((0, LENGTH + 1), np.uint8), *map(tokenize, texts)])
    return {"x": joined[:, :-1], "y": joined[:, 1:]}


def tokenize(text: bytes) -> np.ndarray:
    """A snippet as windows of 81 tokens: begin, its characters, end, and padding."""
    tokens = np.concatenate([[BEGIN], _TOKENS[np.frombuffer(text, np.uint8)], [END]])
    windows = np.zeros((-(-len(tokens) // (LENGTH + 1)), LENGTH + 1), np.uint8)
    windows.reshape(-1)[: len(tokens)] = tokens
    return windows


def read_leaf(data: str | Path | None = None, source: str = "files") -> Dataset:
    """The windows of every role: `x` is n × 80 tokens of uint8, `y` the next one."""
    name = "shakespeare-leaf"
    if choice("source", source, ("files", "huggingface")) == "huggingface":
        return layouts.read_hub(name, data, ("character_id", "x", "y"), _from_lists)
    looked = sources.folders(name, data)
    if leaf := layouts.read_leaf(name, looked, _from_lists):
        return leaf
    places = ", ".join(map(str, looked))
    raise DataError(
        f"No train/*.json of LEAF's Shakespeare in {places}. Make it with LEAF's preprocess.sh and "
        "point `--data` to the folder, or take it from the Hugging Face Hub: source=huggingface."
    )


def _from_lists(x: list[Any], y: list[Any]) -> Examples:
    for texts, length in ((x, LENGTH), (y, 1)):
        for text in texts:
            if not isinstance(text, str) or len(text) != length:
                raise DataError(f"`x` must be {LENGTH} characters and `y` one, got {text!r}.")
    # One byte per character; what is not ASCII becomes 0, which is in no vocabulary.
    plain = (re.sub(r"[^\x00-\x7f]", "\0", "".join(texts)).encode() for texts in (x, y))
    tokens, following = (_LEAF_TOKENS[np.frombuffer(text, np.uint8)] for text in plain)
    return {"x": tokens.reshape(-1, LENGTH), "y": following.astype(np.int32)}
