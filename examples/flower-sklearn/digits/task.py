"""scikit-learn's digits, split over clients so that each knows some digits better than others."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

CLIENTS = 10
Model = list[np.ndarray]  # coefficients (10, 64) and intercepts (10,)


def start() -> Model:
    return [np.zeros((10, 64)), np.zeros(10)]


def data(client: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a client; those of None are for testing."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    test = np.arange(len(labels)) % 5 == 0
    if client is None:
        return images[test], labels[test]
    # Half of a digit's images go to the client of that number, the others to all alike.
    draws = np.random.default_rng(0).random((2, len(labels)))
    owner = np.where(draws[0] < 0.5, labels, (CLIENTS * draws[1]).astype(int))
    mine = ~test & (owner == client % CLIENTS)
    return images[mine], labels[mine]


def fitted(model: Model) -> SGDClassifier:
    """scikit-learn's logistic regression with these weights."""
    classifier = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05)
    classifier.classes_ = np.arange(10)
    classifier.coef_, classifier.intercept_ = (array.copy() for array in model)
    return classifier


def train(model: Model, images: np.ndarray, labels: np.ndarray) -> Model:
    """One pass over the examples."""
    classifier = fitted(model)
    classifier.partial_fit(images, labels, classes=np.arange(10))
    return [classifier.coef_, classifier.intercept_]
