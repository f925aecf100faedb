"""The model, and the glyphs that a client's writers drew."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 62
WRITERS = 20  # a client has the glyphs of so many


class Net(nn.Module):
    """Two convolutions with pooling between, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, CLASSES),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def data(client: int) -> TensorDataset:
    """A client's glyphs: images (n, 1, 28, 28) and labels. They are drawn once and then kept."""
    path = Path(tempfile.gettempdir()) / f"taciturn-glyphs-{client}.npz"
    if not path.exists():
        images, labels = draw(range(client * WRITERS, (client + 1) * WRITERS))
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            np.savez(file, images=images, labels=labels)
        os.replace(file.name, path)
    with np.load(path) as arrays:
        return TensorDataset(*(torch.from_numpy(arrays[name]) for name in ("images", "labels")))


def draw(writers: range) -> tuple[np.ndarray, np.ndarray]:
    """All that these writers drew."""
    import jax

    from taciturn.tasks import load

    clients = load("glyphs").clients
    drawn = jax.jit(clients.batch)
    images, labels = [], []
    for writer in writers:
        count = int(clients.rows_of(np.array([writer]))[0])
        batch = drawn(np.int32(writer), np.arange(clients.longest))
        images.append(np.asarray(batch["x"], np.float32)[:count].reshape(count, 1, 28, 28))
        labels.append(np.asarray(batch["y"], np.int64)[:count])
    return np.concatenate(images), np.concatenate(labels)


def train(net: Net, data: TensorDataset, epochs: int, batch: int, rate: float) -> float:
    """Trains by SGD and returns the mean loss of the last epoch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    net.train()
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for images, labels in DataLoader(data, batch, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(labels)
    return total / len(data)


@torch.no_grad()
def test(net: Net, data: TensorDataset) -> tuple[float, float]:
    """Accuracy and mean loss."""
    net.eval()
    images, labels = data.tensors
    scores = net(images)
    loss = nn.functional.cross_entropy(scores, labels).item()
    return (scores.argmax(1) == labels).float().mean().item(), loss
