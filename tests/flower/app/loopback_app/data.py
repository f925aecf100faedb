"""Four clients with data of very different size, so that it is plain who has something to say."""

import os

import numpy as np

INPUTS = 100
OUTPUTS = int(os.environ.get("LOOPBACK_OUTPUTS", "5000"))
RATE = float(os.environ.get("LOOPBACK_RATE", "0.1"))
EXAMPLES = (30, 20, 25, 10)
SCALES = (1.0, 0.8, 0.05, 0.03)  # how much a client's errors count for it


def client(k: int) -> dict[str, np.ndarray]:
    """The examples of client k: inputs, outputs and how much an error counts."""
    draws = np.random.default_rng(k)
    x = draws.standard_normal((EXAMPLES[k], INPUTS), np.float32)
    y = draws.standard_normal((EXAMPLES[k], OUTPUTS), np.float32)
    return {"x": x, "y": y, "scale": np.full(EXAMPLES[k], SCALES[k], np.float32)}


def start() -> dict[str, np.ndarray]:
    """The first model: weights in the order in which JAX flattens a dictionary."""
    return {"b": np.zeros(OUTPUTS, np.float32), "w": np.zeros((INPUTS, OUTPUTS), np.float32)}


def train(model: dict[str, np.ndarray], k: int) -> dict[str, np.ndarray]:
    """One step of gradient descent on the mean over examples of scale · error² / 2."""
    x, y, scale = client(k).values()
    error = scale[:, None] * (x @ model["w"] + model["b"] - y) / np.float32(len(x))
    rate = np.float32(RATE)
    return {"b": model["b"] - rate * error.sum(0), "w": model["w"] - rate * (x.T @ error)}
