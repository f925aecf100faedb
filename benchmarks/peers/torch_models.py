"""The paper's models in PyTorch, with Taciturn's first weights, and plain local training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from common import CLASSES, CLIP, EPOCHS, LR, VOCABULARY
from torch import nn
from torch.nn import functional


class EmnistCNN(nn.Module):
    """Two 3 × 3 convolutions and two dense layers; 1,206,590 weights."""

    def __init__(self, dropout: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dense1 = nn.Linear(9216, 128)
        self.dense2 = nn.Linear(128, CLASSES)
        self.first = nn.Dropout(0.25 if dropout else 0.0)
        self.second = nn.Dropout(0.5 if dropout else 0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images (batch, 28, 28)."""
        x = functional.relu(self.conv1(x[:, None]))
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = self.first(x.flatten(1))
        x = self.second(functional.relu(self.dense1(x)))
        return self.dense2(x)

    def start_from(self, weights: dict[str, np.ndarray]) -> None:
        """Takes over Taciturn's weights, whose images and patches are height, width, channel."""
        state = {}
        for name, inputs in (("conv1", 1), ("conv2", 32)):
            kernel = weights[f"{name}.kernel"].reshape(3, 3, inputs, -1)
            state[f"{name}.weight"] = kernel.transpose(3, 2, 0, 1)
        flat = weights["dense1.kernel"].reshape(12, 12, 64, 128).transpose(2, 0, 1, 3)
        state["dense1.weight"] = flat.reshape(9216, 128).T
        state["dense2.weight"] = weights["dense2.kernel"].T
        for name in ("conv1", "conv2", "dense1", "dense2"):
            state[f"{name}.bias"] = weights[f"{name}.bias"]
        self.load_state_dict(_tensors(state))


class CharLSTM(nn.Module):
    """Embedding of 8, two LSTMs of 256, a dense layer; 820,522 weights that are trained.

    PyTorch's LSTM has two biases that are added up: the second is zero and stays so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.dense = nn.Linear(256, VOCABULARY)
        self.lstm.bias_hh_l0.requires_grad_(False)
        self.lstm.bias_hh_l1.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (batch, time, vocabulary) of tokens (batch, time)."""
        return self.dense(self.lstm(self.embedding(tokens))[0])

    def start_from(self, weights: dict[str, np.ndarray]) -> None:
        """Takes over Taciturn's weights; the order of the gates is the same."""
        state = {
            "embedding.weight": weights["embedding"],
            "dense.weight": weights["dense.kernel"].T,
            "dense.bias": weights["dense.bias"],
        }
        for layer, name in enumerate(("lstm1", "lstm2")):
            state[f"lstm.weight_ih_l{layer}"] = weights[f"{name}.kernel"].T
            state[f"lstm.weight_hh_l{layer}"] = weights[f"{name}.recurrent"].T
            state[f"lstm.bias_ih_l{layer}"] = weights[f"{name}.bias"]
            state[f"lstm.bias_hh_l{layer}"] = np.zeros_like(weights[f"{name}.bias"])
        self.load_state_dict(_tensors(state))


def _tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The weights that are trained."""
    return [p for p in model.parameters() if p.requires_grad]


def mean_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def train_locally(model: nn.Module, x: torch.Tensor, y: torch.Tensor, batch: int) -> None:
    """E epochs of mini-batch SGD over examples that lie in the order of training."""
    model.train()
    parameters = trained(model)
    optimizer = torch.optim.SGD(parameters, lr=LR)
    for _ in range(EPOCHS):
        for inputs, labels in zip(x.split(batch), y.split(batch), strict=True):
            optimizer.zero_grad(set_to_none=True)
            mean_loss(model(inputs), labels).backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()


@torch.no_grad()
def evaluate(model: nn.Module, x: torch.Tensor, y: torch.Tensor, most: int = 500) -> dict[str, Any]:
    """Loss and accuracy on a test set, in batches."""
    model.eval()
    loss = right = 0.0
    for inputs, labels in zip(x.split(most), y.split(most), strict=True):
        logits = model(inputs)
        loss += float(mean_loss(logits, labels)) * len(inputs)
        right += float((logits.argmax(-1) == labels).float().mean()) * len(inputs)
    return {"loss": loss / len(x), "accuracy": right / len(x)}


def device_name(device: str) -> str | None:
    """The GPU's name; None on a CPU."""
    return torch.cuda.get_device_name() if device == "cuda" else None


def wait_for(device: str) -> Any:
    return torch.cuda.synchronize if device == "cuda" else lambda: None
