"""Shakespeare by role: tokens to the letter, limits, weights and what counts as right."""

from types import SimpleNamespace

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from made import write_leaf, write_tff

from taciturn.data import layouts, shakespeare
from taciturn.tasks import load

BEGIN, END, UNKNOWN = 88, 89, 87


def write(folder, **roles):
    for split in ("train", "test"):
        features = {name: {"snippets": np.array(texts)} for name, texts in roles.items()}
        write_tff(folder / f"shakespeare_{split}.h5", features)
    return folder


def test_a_snippet_is_begin_characters_end_and_padding_in_windows_of_81():
    (window,) = shakespeare.tokenize(b"dh\r~l")  # the first two, the last, none, and the third
    assert window.tolist() == [BEGIN, 1, 2, 86, UNKNOWN, 3, END] + [0] * 74
    for length, windows in ((0, 1), (79, 1), (80, 2), (160, 2), (161, 3)):
        tokens = shakespeare.tokenize(b"d" * length)
        assert tokens.shape == (windows, 81)
        padding = [0] * (81 * windows - length - 2)
        assert tokens.ravel().tolist() == [BEGIN, *[1] * length, END, *padding]


def test_inputs_are_the_first_80_and_targets_the_last(tmp_path):
    task = load("shakespeare", data=write(tmp_path, R=[b"hd"], S=[b"l", b""]))
    first = task.clients.batch(jnp.int32(0), jnp.arange(1))
    assert first["x"].shape == first["y"].shape == (1, 80)
    assert first["x"][0, :4].tolist() == [BEGIN, 2, 1, END]
    assert first["y"][0, :4].tolist() == [2, 1, END, 0]
    assert task.clients.rows.tolist() == [1, 2]
    assert len(task.test["y"]) == 3


def test_strings_of_any_length_are_read_too(tmp_path):
    write(tmp_path, R=[b"hd", b""])
    first = shakespeare.read(tmp_path)
    with h5py.File(tmp_path / "shakespeare_train.h5", "w") as file:
        file.create_dataset("examples/R/snippets", data=["hd", ""], dtype=h5py.string_dtype())
    second = shakespeare.read(tmp_path)
    np.testing.assert_array_equal(second.train["x"], first.train["x"])
    assert second.counts == first.counts == {"train snippets": 2, "test snippets": 2}


def test_a_role_has_at_most_so_many_sequences(tmp_path):
    data = write(tmp_path, R=[b"d"] * 200, S=[b"h"] * 3, T=[b"l"] * 130)
    clients = load("shakespeare", data=data).clients
    assert clients.rows.tolist() == [128, 3, 128]
    assert (clients.arrays["x"][128:131, 1] == 2).all()  # S begins where R was cut off
    few = load("shakespeare", data=data, limit=2)
    assert few.clients.rows.tolist() == [2, 2, 2]
    assert len(few.test["x"]) == 333  # tested on all


def test_roles_weigh_their_tokens_or_their_sequences(tmp_path):
    data = write(tmp_path, R=[b"abc", b""], S=[b"d" * 79])
    # Targets: three characters and an end, an end; 79 characters and an end.
    assert load("shakespeare", data=data).clients.examples.tolist() == [5, 80]
    assert load("shakespeare", data=data, limit=1).clients.examples.tolist() == [4, 80]
    by_sequence = load("shakespeare", data=data, weigh="sequences").clients
    assert by_sequence.examples.tolist() == [2, 1]


def test_accuracy_leaves_padding_out_and_loss_does_not(tmp_path):
    task = load("shakespeare", data=write(tmp_path, R=[b"dd", b"hhh"]))
    batch = task.clients.batch(jnp.int32(0), jnp.arange(2))

    def model(tokens, key):  # always expects `d`
        return jnp.zeros((*tokens.shape, 90)).at[..., 1].set(3.0)

    metrics = task.metrics(model, batch)
    assert metrics["accuracy"][0].tolist() == [2, 0]
    assert metrics["accuracy"][1].tolist() == [3, 4]
    silent = task.metrics(lambda tokens, key: jnp.eye(90)[jnp.zeros_like(tokens)], batch)
    assert silent["accuracy"][0].tolist() == [0, 0]  # padding that is foreseen is not right either
    every = np.log(89 + np.exp(3)) - 3 * (np.asarray(batch["y"]) == 1)
    np.testing.assert_allclose(task.loss(model, batch, None), every.mean(1), rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"][0], every.mean(1), rtol=1e-6)


def test_leafs_windows_are_a_task_of_their_own(tmp_path, monkeypatch):
    first = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to su"
    second = "é" + first[:79]
    write_leaf(tmp_path / "train/a.json", {"R": ([first, second], ["f", "ü"])})
    write_leaf(tmp_path / "test/a.json", {"R": ([first], ["f"])})
    task = load("shakespeare-leaf", data=tmp_path)
    letters = shakespeare.LEAF_CHARACTERS
    batch = task.clients.batch(jnp.int32(0), jnp.arange(2))
    assert batch["x"][0].tolist() == [letters.index(c) for c in first]
    assert batch["x"][1, 0] == 80  # unknown
    assert batch["y"].tolist() == [letters.index("f"), 80]
    model = jax.eval_shape(task.init, jax.random.key(0))
    assert jax.eval_shape(task.loss, model, batch, None).shape == (2,)
    assert model.dense.bias.shape == (81,)
    blocks = [{"character_id": ["R", "S"], "x": [first] * 2, "y": ["f", "g"]}]
    hub = SimpleNamespace(iter=lambda size: blocks)
    monkeypatch.setattr(layouts, "load_table", lambda name: hub)
    task = load("shakespeare-leaf", source="huggingface")
    assert task.clients.rows.tolist() == [1, 1]
