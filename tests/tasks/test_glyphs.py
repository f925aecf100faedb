"""The embedded task: pure, cheap at any population, and different from writer to writer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.tasks import load
from taciturn.tasks.glyphs import CHARACTERS, FACES, FEWEST, MOST, SIDE
from taciturn.tasks.task import with_test

examples = jax.jit(lambda clients, client, indices: clients.batch(client, indices))


def draw(clients, client, indices):
    """These examples, as NumPy arrays; asked for by the hundred, so that few shapes compile."""
    asked = np.resize(np.asarray(indices), -(-len(indices) // 100) * 100)
    batch = examples(clients, jnp.int32(client), jnp.asarray(asked))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(indices)], batch)


@pytest.fixture(scope="module")
def clients():
    return load("glyphs").clients


def test_an_example_depends_on_writer_and_index_alone(clients):
    alone, among = draw(clients, 7, [11]), draw(clients, 7, range(11, 31))
    plain = clients.batch(jnp.int32(7), jnp.arange(11, 12))
    many = load("glyphs", population=10_000_000).clients
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(many)) < 4e6
    for other in (among, plain, draw(many, 7, [11])):
        np.testing.assert_allclose(other["x"][0], alone["x"][0], atol=2e-3)
        assert other["y"][0] == alone["y"][0]


def test_writers_differ_in_amount_labels_and_pixels(clients):
    sizes = np.asarray(clients.rows_of(jnp.arange(1000)))
    assert sizes.min() == FEWEST
    assert sizes.max() == MOST == clients.longest
    assert 50 < np.median(sizes) < 75
    first, second = (draw(clients, k, range(200)) for k in (0, 1))
    counts = [np.bincount(batch["y"], minlength=62) / 200 for batch in (first, second)]
    assert max(counts[0]) > 3 / 62  # a favourite
    assert np.abs(counts[0] - counts[1]).sum() > 0.5
    assert abs(np.corrcoef(first["y"], second["y"])[0, 1]) < 0.3  # drawn apart; deviation 0.07
    ink = [np.mean(draw(clients, k, range(100))["x"] > 0.5) for k in range(20)]
    assert max(ink) > 2 * min(ink)


def test_every_face_and_every_character_is_drawn(clients):
    fields = clients.data["fields"].astype(int).reshape(len(FACES), len(CHARACTERS), -1)
    assert (fields.max(-1) > 8).all()  # ink more than half a cell thick
    square = clients.data["fields"]
    assert max(square[:, [0, -1]].max(), square[:, :, [0, -1]].max()) < 0  # none on the border
    # No character of a face is a copy of another: a missing one would be drawn as an empty box.
    for face in fields:
        assert len({row.tobytes() for row in face}) == len(CHARACTERS)
    assert len({face.tobytes() for face in fields}) == len(FACES)


def test_labels_match_the_characters_drawn():
    """A nearest-template reader, told the face, reads a plain hand well above chance."""
    task = load("glyphs", population=2_000)
    _, (test, *_) = with_test(task)
    fields = task.clients.data["fields"].reshape(len(FACES), 62, 28, 2, 28, 2).mean((3, 5)) > 0
    templates = fields.reshape(-1, SIDE * SIDE).astype(np.float32)
    templates /= np.linalg.norm(templates, axis=1, keepdims=True)
    scores = test["x"].reshape(-1, SIDE * SIDE) @ templates.T
    read = scores.argmax(1) % 62
    assert np.mean(read == test["y"]) > 0.25  # chance is 1/62
