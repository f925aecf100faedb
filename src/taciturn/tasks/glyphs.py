"""Glyphs: an embedded handwriting-like task of 62 classes that is drawn, not stored.

Every example is a pure function of (writer, index). A writer has a face, one of those that come
with matplotlib, and a hand: slant, width, size, rotation, stroke, wobble, offset, softness, noise,
favourite characters and an amount of writing, so that clients differ in pixels, labels and amounts.
A population of ten million writers costs what one of a hundred does.

Characters are kept as signed distance fields, distances to the outline that are positive in the
ink: they stay smooth under any affine map, and a stroke is thickened by adding a number.
"""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.checks import whole
from taciturn.core.hashing import mix
from taciturn.errors import require
from taciturn.models import SmallCNN
from taciturn.tasks.clients import Generated
from taciturn.tasks.task import Task, classification

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FACES = (  # that have all characters and come with every matplotlib that may be installed
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSerif", "DejaVuSerif-Italic",
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "cmr10", "cmss10", "STIXGeneralBolIta",
    "cmtt10",
)  # fmt: skip
SIDE = 28
FEWEST, MOST = 20, 200

_GRID = 56  # side of a character's distance field, two cells to a pixel of the image
_CAPITAL, _BASELINE = 32, 41  # height of an H and where it stands, in cells
_STEPS = 16  # int8 levels a cell
_FAR = 7.9  # cells; distances are cut off here, no stroke is that thick


def glyphs(population: int = 1_000, seed: int = 0) -> Task:
    """Drawn handwriting by writer: which of 62 characters an image shows.

    Args:
      population: how many writers there are.
      seed: another seed, other writers.
    """
    population = whole("population", population, most=2**31 - 1)
    loss, metrics = classification(lambda model, x, key: model(x, key))
    data = {"fields": _fields(), "seed": np.uint32(whole("seed", seed, 0, 2**32 - 1))}
    return Task(
        "glyphs",
        Generated(population, MOST, rows=_rows, example=_example, data=data),
        init=SmallCNN,
        loss=loss,
        metrics=metrics,
        # Found by trial: 75 % after 100 rounds of 10 writers, where batches of 20 at 0.1 give 19.
        batch=10,
        lr=0.5,
    )


# The traits of a writer's hand, each drawn evenly between two ends.
_HAND = {
    "face": (0.0, len(FACES)), "slant": (-0.25, 0.4), "width": (0.75, 1.15), "size": (0.8, 1.15),
    "turn": (-0.12, 0.12), "stroke": (-0.3, 1.4), "wobble": (0.0, 1.2), "right": (-2.0, 2.0),
    "down": (-1.5, 1.5), "soft": (0.6, 1.6), "noise": (0.0, 0.3),
}  # fmt: skip


def _writer(client: Any, data: Any) -> jax.Array:
    return mix(jnp.asarray(client).astype(jnp.uint32) + mix(jnp.asarray(data["seed"])))


def _hand(writer: jax.Array) -> dict[str, jax.Array]:
    low, high = jnp.array([*_HAND.values()]).T
    return dict(zip(_HAND, low + (high - low) * _uniforms(writer, 0, len(_HAND)), strict=True))


def _rows(client: Any, data: Any) -> jax.Array:
    """Lognormal, median 60, held in [FEWEST, MOST]."""
    u = _uniforms(_writer(client, data), 100, 1)[0]
    rows = 60 * jnp.exp(0.6 * jax.scipy.special.ndtri(u))
    return jnp.clip(rows, FEWEST, MOST).astype(jnp.int32)


def _favourites(writer: jax.Array) -> jax.Array:
    """How likely each character is, summed up to it: squares of exponential draws."""
    weights = jnp.square(jnp.log(_uniforms(writer, 200, len(CHARACTERS))))
    total = jnp.cumsum(weights)
    return total / total[-1]


def _example(client: Any, index: Any, data: Any) -> dict[str, jax.Array]:
    """An image of 28 × 28 in [0, 1], and which character it shows."""
    writer = _writer(client, data)
    hand = _hand(writer)
    moment = mix(writer ^ mix(jnp.asarray(index).astype(jnp.uint32) + jnp.uint32(0x51ED270B)))
    u = _uniforms(moment, 0, 10)
    label = jnp.sum(u[0] >= _favourites(writer)[:-1]).astype(jnp.int32)
    hand = _varied(hand, u)
    column, row = _map(hand, 2 * jnp.pi * u[8:10])
    constant = jnp.asarray(np.eye(len(_GROUND))[2], jnp.float32)
    character = hand["face"].astype(jnp.int32) * len(CHARACTERS) + label
    first, salt = (x.astype(jnp.float32) for x in (character * _GRID**2, moment >> 8))
    edge = 1 / (2 * hand["soft"])
    level = 0.5 + hand["stroke"] / (2 * hand["soft"])
    alike = jnp.stack([first, salt, level, edge, hand["noise"]])  # all pixels share these
    lines = jnp.stack([column, row, *(alike[:, None] * constant)])
    # Through a matrix product, because XLA would else compute all of the above anew for every
    # pixel: it never fuses what goes into a product. Whole numbers below 2²⁴ come out exact.
    column, row, first, salt, level, edge, noise = jnp.matmul(
        lines, jnp.asarray(_GROUND), precision=jax.lax.Precision.HIGHEST
    )
    distance = _look_up(data["fields"], first.astype(jnp.int32), row, column)
    ink = jnp.clip(level + edge * distance, 0.0, 1.0)
    image = jnp.clip(ink + noise * _grain(salt), 0.0, 1.0)
    return {"x": image.reshape(SIDE, SIDE), "y": label}


def _varied(hand: dict[str, jax.Array], u: jax.Array) -> dict[str, jax.Array]:
    """The hand at one moment: nobody writes the same character twice the same way."""
    return hand | {
        "slant": hand["slant"] + 0.12 * (u[1] - 0.5),
        "width": hand["width"] * (1 + 0.14 * (u[2] - 0.5)),
        "size": hand["size"] * (1 + 0.14 * (u[3] - 0.5)),
        "turn": hand["turn"] + 0.12 * (u[4] - 0.5),
        "right": hand["right"] + 2 * (u[5] - 0.5),
        "down": hand["down"] + 2 * (u[6] - 0.5),
        "stroke": hand["stroke"] + 0.4 * (u[7] - 0.5),
    }


def _map(hand: dict[str, jax.Array], waves: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Column and row of the field's cell that a pixel shows, each as a sum over `_GROUND`.

    A pixel is moved and wobbled, turned, slanted and scaled.
    """
    zero, one = jnp.zeros(()), jnp.ones(())
    wave = hand["wobble"] * jnp.stack([jnp.sin(waves), jnp.cos(waves)])
    x = jnp.stack([one, zero, -hand["right"], wave[0, 0], wave[1, 0], zero, zero])
    y = jnp.stack([zero, one, -hand["down"], zero, zero, wave[0, 1], wave[1, 1]])
    turn = hand["turn"]
    x, y = jnp.cos(turn) * x + jnp.sin(turn) * y, jnp.cos(turn) * y - jnp.sin(turn) * x
    cells = _GRID / SIDE / hand["size"]
    return cells / hand["width"] * (x + hand["slant"] * y), cells * y


def _grain(salt: jax.Array) -> jax.Array:
    """Noise in [−1, 1) for each pixel: the sum of two uniforms, a triangle, stands for a normal."""
    places = jnp.arange(SIDE * SIDE, dtype=jnp.uint32) << 8
    bits = mix(salt.astype(jnp.uint32) ^ mix(places + jnp.uint32(0x3C6EF372)))
    grain = (bits >> 16).astype(jnp.float32) + (bits & 0xFFFF).astype(jnp.float32)
    return grain / 65536 - 1


def _ground() -> np.ndarray:
    """What every pixel's place on a field is a sum of: x, y, 1, and waves down and across."""
    line = np.arange(SIDE) - (SIDE - 1) / 2
    y, x = (grid.ravel() for grid in np.meshgrid(line, line, indexing="ij"))
    one, pace = np.ones_like(x), 0.35
    waves = np.cos(pace * y), np.sin(pace * y), np.cos(pace * x), np.sin(pace * x)
    return np.stack([x, y, one, *waves]).astype(np.float32)


_GROUND = _ground()


def _look_up(fields: Any, first: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
    """The distance at these places, from the middle, of the field that begins at `first`.

    In cells, bilinear; outside of the field it is that of the border, which is far from any ink.
    """
    flat = jnp.asarray(fields).reshape(-1)
    row, column = (jnp.clip(at + (_GRID - 1) / 2, 0.0, _GRID - 1.001) for at in (row, column))
    r, c = row.astype(jnp.int32), column.astype(jnp.int32)
    at = first + r * _GRID + c
    dr, dc = row - r.astype(jnp.float32), column - c.astype(jnp.float32)
    corners = (flat[at + step].astype(jnp.float32) for step in (0, 1, _GRID, _GRID + 1))
    left, right, low_left, low_right = corners
    above, below = (1 - dc) * left + dc * right, (1 - dc) * low_left + dc * low_right
    return ((1 - dr) * above + dr * below) / _STEPS


@cache
def _fields() -> np.ndarray:
    """The distance fields of all characters of all faces, drawn once: int8, faces × 62 × side²."""
    folder = Path(require("matplotlib", "sim").get_data_path()) / "fonts" / "ttf"
    draw, fonts = (require(f"PIL.{name}", "sim") for name in ("ImageDraw", "ImageFont"))
    image = require("PIL.Image", "sim")
    distance = require("scipy.ndimage", "sim").distance_transform_edt
    fine = 2 * _GRID  # drawn at twice the resolution, so that an outline lies between cells
    fields = np.empty((len(FACES) * len(CHARACTERS), _GRID, _GRID), np.int8)
    for i, face in enumerate(FACES):
        path = str(folder / f"{face}.ttf")
        # Faces fill their em differently; all get capitals of one height.
        left, top, right, bottom = fonts.truetype(path, 200).getbbox("H", anchor="ls")
        font = fonts.truetype(path, round(200 * 2 * _CAPITAL / (bottom - top)))
        for j, character in enumerate(CHARACTERS):
            sheet = image.new("L", (fine, fine))
            left, top, right, bottom = font.getbbox(character, anchor="ls")
            corner = (fine / 2 - (left + right) / 2, 2 * _BASELINE)
            draw.Draw(sheet).text(corner, character, fill=255, font=font, anchor="ls")
            ink = np.asarray(sheet) > 127
            field = distance(ink) - distance(~ink)
            field = field.reshape(_GRID, 2, _GRID, 2).mean((1, 3)) / 2
            fields[i * len(CHARACTERS) + j] = np.round(np.clip(field, -_FAR, _FAR) * _STEPS)
    return fields


def _uniforms(seed: jax.Array, first: int, count: int) -> jax.Array:
    """Draws from (0, 1), as a function of seed and place alone.

    A hash and not `jax.random`, whose bits depend on flags of JAX, and which is slower.
    """
    places = jnp.arange(first, first + count, dtype=jnp.uint32)
    bits = mix(seed ^ mix(places * jnp.uint32(0x9E3779B9) + jnp.uint32(0x7F4A7C15)))
    return ((bits >> 8).astype(jnp.float32) + 0.5) * 2.0**-24
