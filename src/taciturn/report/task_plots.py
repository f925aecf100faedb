"""A picture of a task: examples of a few clients, how much each has, and how many labels."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata

from taciturn.data.shakespeare import CHARACTERS, LEAF_CHARACTERS
from taciturn.errors import require
from taciturn.report import figures
from taciturn.tasks.clients import Clients
from taciturn.tasks.task import Task

_ROWS, _COLUMNS = 12, 20
_EXAMPLES = 10  # of a client, of vectors
_NAMED = 60  # columns, below which there is room for their names
_SMALL = 8  # pixels; what is lower or narrower is no picture
_BREAKS = str.maketrans("\n\r", "//")
_COUNTED = 400  # clients that the histograms look at, evenly spaced


def show(task: Task, path: Path) -> Path:
    """Writes a PNG: contact sheet, histogram of examples and of labels per client."""
    clients, population = task.clients, task.clients.population
    chosen = _spaced(population, _COUNTED)
    rows = np.asarray(clients.rows_of(jnp.asarray(chosen)))
    batches = [_batch(clients, k, n) for k, n in zip(chosen, rows, strict=True)]

    figure = require("matplotlib.figure", "sim").Figure(figsize=(13, 7), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2.2, 1))
    names = getattr(clients, "names", ()) or range(population)
    picked = _spaced(len(chosen), _ROWS)
    _sheet(left.subplots(), task.name, getattr(task.encode, "names", ()),
           [str(names[chosen[i]]) for i in picked], [batches[i] for i in picked])  # fmt: skip
    top, bottom = right.subplots(2, 1)
    top.hist(rows, bins=min(30, max(1, len(np.unique(rows)))), color="0.3")
    top.locator_params(integer=True, min_n_ticks=1)
    top.set(xlabel="examples of a client", ylabel="clients")
    _labels(bottom, [batch["y"] for batch in batches])
    of = f"{population:,} clients" + (f", {len(chosen)} counted" if population > _COUNTED else "")
    spread = f"{rows.min()} to {rows.max()} examples each, median {np.median(rows):g}"
    top.set_title(f"{of}\n{spread}", fontsize=10)
    return figures.save(figure, path, dpi=100)


def _labels(axes: Any, labels: list[np.ndarray]) -> None:
    """How many labels clients have; where numbers are predicted, which."""
    joined = np.concatenate(labels)
    if joined.ndim == 1 and (joined != np.rint(joined)).any():
        axes.hist(joined, bins=30, color="0.3")
        axes.set(xlabel="what is to be predicted", ylabel="examples")
        return
    counts = [len(np.unique(some)) for some in labels]
    axes.hist(counts, bins=np.arange(min(counts), max(counts) + 2) - 0.5, color="0.3")
    axes.locator_params(integer=True, min_n_ticks=1)
    axes.set(xlabel="different labels of a client", ylabel="clients")


def _spaced(total: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, total - 1, min(total, most), dtype=np.int64)).astype(np.int32)


_rows_of = jax.jit(lambda clients, client, indices: clients.batch(client, indices))


def _batch(clients: Clients, client: int, rows: int) -> Any:
    """All rows of a client, asked for at the length of the longest: one program does for all."""
    indices = np.minimum(np.arange(clients.longest), rows - 1)
    batch = _rows_of(clients, jnp.int32(client), jnp.asarray(indices))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:rows], batch)


def _sheet(
    axes: Any, task: str, features: tuple[str, ...], clients: list[str], batches: list[Any]
) -> None:
    """Examples of each of a few clients."""
    axes.set_title(f"{task}: examples of {len(clients)} clients")
    clients = [name if len(name) <= 16 else f"{name[:15]}…" for name in clients]
    inputs = [batch["x"] for batch in batches]
    axes.set_xticks([])
    if task.startswith("shakespeare"):
        letters = LEAF_CHARACTERS + "?" if task.endswith("leaf") else "\0" + CHARACTERS + "?^$"
        _text(axes, letters, clients, inputs)
    elif inputs[0].ndim < 3:
        axes.set_yticks(_vectors(axes, features, inputs), clients, parse_math=False)
    else:
        draw = _curves if min(inputs[0].shape[1:3]) < _SMALL else _images
        axes.set_yticks(draw(axes, inputs), clients, parse_math=False)


def _images(axes: Any, inputs: list[np.ndarray]) -> list[float]:
    """A row of pictures for each client; returns where the rows are, as do the next two."""
    high, wide = inputs[0].shape[1:3]
    columns = min(_COLUMNS, max(1, 28 * _COLUMNS // wide))
    sheet = np.full((len(inputs) * (high + 2), columns * (wide + 2)), np.nan)
    for i, images in enumerate(inputs):
        for j, image in enumerate(images[:columns]):
            top, left = i * (high + 2), j * (wide + 2)
            grey = image if image.ndim == 2 else image.mean(-1)
            sheet[top : top + high, left : left + wide] = grey
    # Ink is dark on white, whichever of the two the data call 1.
    dark = np.nanmean(sheet) > (np.nanmin(sheet) + np.nanmax(sheet)) / 2
    axes.imshow(sheet, cmap="gray" if dark else "gray_r")
    return [i * (high + 2) + high / 2 for i in range(len(inputs))]


def _vectors(axes: Any, features: tuple[str, ...], inputs: list[np.ndarray]) -> np.ndarray:
    """A line of cells for each example; the rank within its column is a cell's colour."""
    few = [x[:_EXAMPLES].reshape(len(x[:_EXAMPLES]), -1) for x in inputs]
    ends = np.cumsum([len(x) for x in few])
    # Numbers themselves would show outliers alone.
    ranks = np.insert(rankdata(np.concatenate(few), axis=0), ends[:-1], np.nan, axis=0)
    axes.imshow(ranks, aspect="auto", interpolation="nearest")
    if len(features) <= _NAMED:
        axes.set_xticks(range(len(features)), features, rotation=90, parse_math=False)
    axes.set_xlabel("numbers of an example: the least of each in dark, the largest in bright")
    return ends - [len(x) / 2 for x in few] + np.arange(len(few)) - 0.5


def _curves(axes: Any, inputs: list[np.ndarray]) -> list[float]:
    """Recordings of a few channels: a curve for each channel of each example."""
    few = [x[:4].reshape(len(x[:4]), x.shape[1], -1).astype(float) for x in inputs]
    if few[0].shape[1] < few[0].shape[2]:  # channels first
        few = [x.swapaxes(1, 2) for x in few]
    joined = np.concatenate(few)
    low, high = joined.min((0, 1)), joined.max((0, 1))
    for i, examples in enumerate(few):
        for j, example in enumerate((examples - low) / np.where(high > low, high - low, 1.0)):
            axes.set_prop_cycle(None)  # a channel has the same colour everywhere
            axes.plot(j + 0.9 * np.linspace(0, 1, len(example)), 0.8 * example[:, :8] - i - 0.4,
                      lw=0.8)  # fmt: skip
    axes.set_xlabel("each channel from its least to its largest")
    return [-i for i in range(len(inputs))]


def _text(axes: Any, letters: str, clients: list[str], inputs: list[np.ndarray]) -> None:
    lines = []
    for client, x in zip(clients, inputs, strict=True):
        for tokens in x[:4]:
            text = "".join(letters[token] for token in tokens).replace("\0", "")
            lines.append(f"{client:>4.12}  {text.translate(_BREAKS)}")
    axes.axis("off")
    # A dollar sign would begin a formula.
    axes.text(0, 1, "\n".join(lines), family="monospace", fontsize=9, va="top",
              parse_math=False, transform=axes.transAxes)  # fmt: skip
