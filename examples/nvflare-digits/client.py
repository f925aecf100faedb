"""A client script as NVFlare's documentation has it: it knows nothing of Taciturn."""

import numpy as np
import nvflare.client as flare
from sklearn.datasets import load_digits

KEY = "numpy_key"  # what NVFlare calls the one array of a NumPy model
SITES, RATE, STEPS, BATCH = 3, 0.5, 20, 32


def data(site: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A site's part of scikit-learn's digits, and what all test on."""
    digits = load_digits()
    x = np.hstack([digits.data / 16, np.ones((len(digits.data), 1))]).astype(np.float32)
    own = slice(int(site.rpartition("-")[2]) - 1, 1500, SITES)
    return x[own], digits.target[own], x[1500:], digits.target[1500:]


def probabilities(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    scores = x @ weights
    shown = np.exp(scores - scores.max(1, keepdims=True))
    return shown / shown.sum(1, keepdims=True)


def main() -> None:
    flare.init()
    x, y, test_x, test_y = data(flare.get_site_name())
    draws = np.random.default_rng(0)
    while flare.is_running():
        model = flare.receive()
        weights = model.params[KEY]
        accuracy = float((probabilities(weights, test_x).argmax(1) == test_y).mean())
        for _ in range(STEPS):
            batch = draws.choice(len(x), BATCH, replace=False)
            wrong = probabilities(weights, x[batch]) - np.eye(10, dtype=np.float32)[y[batch]]
            weights -= np.float32(RATE / BATCH) * (x[batch].T @ wrong)
        flare.send(flare.FLModel(
            params={KEY: weights}, metrics={"accuracy": accuracy},
            meta={"NUM_STEPS_CURRENT_ROUND": len(x)},
        ))  # fmt: skip


if __name__ == "__main__":
    main()
