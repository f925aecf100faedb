"""The model, and the glyphs that one writer drew."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from laconic.tasks import load

CLASSES = 62
TEST_WRITERS = range(900, 920)  # nobody trains on these


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


@cache
def writer(number: int) -> TensorDataset:
    """All that a writer drew: images (n, 1, 28, 28) and labels."""
    clients = load("glyphs").clients
    count = int(clients.sizes(np.array([number]))[0])
    batch = clients.examples(np.int32(number), np.arange(count))
    images = torch.from_numpy(np.array(batch["x"], np.float32).reshape(count, 1, 28, 28))
    return TensorDataset(images, torch.from_numpy(np.array(batch["y"], np.int64)))


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
