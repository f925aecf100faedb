"""Small tasks for the simulator's tests, and what it means that two runs are the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

try:
    from jax import enable_x64
except ImportError:  # before JAX 0.8
    from jax.experimental import enable_x64  # noqa: F401

import taciturn
from taciturn.models import CharLSTM
from taciturn.models.networks import Conv, Dense, dropout
from taciturn.sim import engine
from taciturn.tasks.task import Stored, Task, classification

SEVERAL = {name: name for name in ("adaptive,k=0+ou", "full", "random:0.5+last")}


# Tasks that are small, because the plain loop compiles for every size of a last batch, and uneven.

POISON = 1e30  # NaN itself is refused where a task is checked


def tiny(poisoned=None):
    """A linear model of three classes in the plane; a poisoned client's become NaN in it.

    Its weights decay: else what classes learn adds up to 0, which a rotation makes a weight of its
    own, and rounding would decide which sign a codec writes for it.
    """
    rng, sizes = np.random.default_rng(0), [3, 12, 5, 20, 7]
    n = sum(sizes)
    y = rng.integers(0, 3, n + 30).astype(np.int32)
    x = (rng.normal(0, 0.5, (len(y), 2)) + np.array([[0, 1], [1, -1], [-1, -1]])[y]).astype("f4")
    if poisoned is not None:
        x[sum(sizes[:poisoned]) :][: sizes[poisoned]] = POISON
    loss, metrics = classification(
        lambda p, x, key: jnp.where(x < POISON, x, jnp.nan) @ p["w"] + p["b"]
    )
    return Task(
        "tiny",
        Stored.of({"x": x[:n], "y": y[:n]}, sizes),
        init=lambda key: {"w": jax.random.normal(key, (2, 3)) * 0.1, "b": jnp.zeros(3)},
        loss=lambda p, batch, key: loss(p, batch, key) + 0.02 * jnp.sum(p["w"] ** 2),
        metrics=metrics,
        test={"x": x[n:], "y": y[n:]},
        test_clients=np.arange(30) % 11,
        batch=5,
        lr=0.5,
    )


def noisy(
    name, init, predict, classes, shape, sizes,
    noise=1.0, **options,
):  # fmt: skip
    """Clients of these sizes, with noisy examples of some classes; 20 more to test on."""
    rng, n = np.random.default_rng(0), sum(sizes)
    y = rng.integers(0, classes, n + 20).astype(np.int32)
    x = rng.normal(0, 1, (classes, *shape))[y] + rng.normal(0, noise, (len(y), *shape))
    x = x.astype(np.float32)
    loss, metrics = classification(predict)
    return Task(
        name, Stored.of({"x": x[:n], "y": y[:n]}, sizes), init=init, loss=loss, metrics=metrics,
        test={"x": x[n:], "y": y[n:]}, batch=5, **options,
    )  # fmt: skip


def few():
    """Six clients and a linear model of 105 weights."""

    def init(key):
        return {"w": jax.random.normal(key, (20, 5)) * 0.1, "b": jnp.zeros(5)}

    return noisy("few", init, lambda p, x, key: x @ p["w"] + p["b"], 5, (20,),
                 [2, 7, 12, 5, 10, 17], test_clients=np.arange(20) % 11, lr=0.1)  # fmt: skip


class SmallCNN(eqx.Module):
    """Convolutions, a pool, dropout and a dense layer, for pictures of four classes."""

    convs: list[Conv]
    dense: Dense

    def __init__(self, key, side=8, channels=(3,)):
        *keys, last = jax.random.split(key, 1 + len(channels))
        sizes = zip(keys, (1, *channels), channels, strict=False)
        self.convs = [Conv(key, 3, before, after) for key, before, after in sizes]
        side = (side - 2 * len(channels)) // 2
        self.dense = Dense(last, side * side * channels[-1], 4)

    def __call__(self, x, key=None):
        x = x[..., None]
        for conv in self.convs[:-1]:
            x = conv(x)
        x = self.convs[-1].pooled(x).reshape(x.shape[0], -1)
        return self.dense(dropout(x, 0.25, None if key is None else jax.random.key_data(key)))


def cnn(model=SmallCNN, side=8, **options):
    """Noisy pictures of four classes; a last batch has 2 of 5, or all."""
    return noisy("cnn", model, lambda model, x, key: model(x, key), 4, (side, side),
                 [2, 7, 12, 5, 10, 17], **{"lr": 0.3} | options)  # fmt: skip


def lstm():
    """Digits that go on by one or two; 12 positions, all of them count."""
    rng, sizes = np.random.default_rng(1), [2, 6, 9, 3, 11]
    n = sum(sizes)
    tokens = (np.cumsum(rng.integers(1, 3, (n + 8, 13)), axis=1) % 10).astype(np.int32)
    loss, metrics = classification(lambda model, x, key: model(x))
    return Task(
        "lstm", Stored.of({"x": tokens[:n, :-1], "y": tokens[:n, 1:]}, sizes), batch=4, lr=1.0,
        init=lambda key: CharLSTM(key, 10, 4, 8),
        loss=lambda params, batch, key: loss(params, batch, key).mean(1),
        metrics=lambda *given: jax.tree.map(lambda each: each.mean(1), metrics(*given)),
        test={"x": tokens[n:, :-1], "y": tokens[n:, 1:]},
    )  # fmt: skip


def distance(a, b):
    """‖a − b‖ / ‖b‖, the largest over seeds."""
    gaps, sizes = np.linalg.norm(a - b, axis=-1), np.linalg.norm(b, axis=-1)
    return float(np.max(np.where(gaps == 0, 0, gaps / np.where(sizes == 0, 1, sizes))))


def assert_identical(ours, theirs):
    """The histories of all arms, bit for bit."""
    assert list(ours) == list(theirs)
    for name, history in theirs.items():
        assert ours[name].seeds == history.seeds
        found = ours[name].columns() | {"weights": ours[name].weights}
        for column, wanted in (history.columns() | {"weights": history.weights}).items():
            assert found[column].dtype == wanted.dtype, column
            np.testing.assert_array_equal(found[column], wanted, f"{name} {column}")
        np.testing.assert_array_equal(ours[name].participation, history.participation, name)


def assert_same(ours, theirs, tolerance=1e-5):
    assert ours.weights.shape == theirs.weights.shape
    assert np.isfinite(ours.weights).all()
    assert distance(ours.weights, theirs.weights) < tolerance
    np.testing.assert_array_equal(ours.participation, theirs.participation)
    found = ours.columns()
    for name, wanted in theirs.columns().items():
        near = {} if wanted.dtype.kind == "i" else {"rtol": 100 * tolerance, "atol": 1e-6}
        np.testing.assert_allclose(found[name], wanted, **{"rtol": 0} | near, err_msg=name)


def assert_agree(task, arms, tolerance=1e-5, **settings):
    """Runs engine and loop, and returns what the engine found; arms may be texts alone."""
    arms = arms if isinstance(arms, dict) else dict(zip(arms, arms, strict=True))
    settings = {"rounds": 5, "evaluate_every": 2} | settings
    ours = taciturn.compare(task, arms, **settings)
    theirs = taciturn.compare(task, arms, plain=True, **settings | {"lanes": None})
    assert list(ours) == list(theirs) == list(arms)
    for name in arms:
        assert_same(ours[name], theirs[name], tolerance)
    return ours


def program_of(run, monkeypatch):
    """The program that a run goes through."""
    used = []
    original = engine.Program.run

    def spy(self, *args):
        used.append(self)
        return original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(engine.Program, "run", spy)
        run()
    (program,) = used
    return program
