"""The EMNIST CNN in pfl-research, as its own image benchmarks run it: users' data in memory as
tensors on the device, and users trained one after another, in one process or, under `torchrun`, in
as many as there are threads."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch
from common import (
    BATCH,
    CLIP,
    COHORT,
    EPOCHS,
    LR,
    Laps,
    arguments,
    examples_of,
    load_data,
    load_plan,
    plan_file,
    report,
    versions,
)
from torch_models import EmnistCNN, device_name, evaluate, mean_loss, trained, wait_for


class _Unused(ModuleType):
    """A module that has any name and can do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _without_accountants() -> None:
    """Lets pfl be imported where its privacy accountants, which nothing here uses, are missing."""
    for package, parts in (
        ("dp_accounting", ("dp_event", "pld", "pld.privacy_loss_distribution", "rdp",
                           "rdp.rdp_privacy_accountant")),
        ("prv_accountant", ()),
    ):  # fmt: skip
        if importlib.util.find_spec(package) is None:
            for name in (package, *(f"{package}.{part}" for part in parts)):
                sys.modules[name] = _Unused(name)


class Model(EmnistCNN):
    """The CNN with the two methods that pfl asks for."""

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return mean_loss(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = True) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"loss": Weighted(float(self.loss(x, y, eval)) * len(y), len(y))}


def main() -> None:
    options = arguments(__doc__ or "")
    workers, rank = (int(os.environ.get(name, d)) for name, d in (("WORLD_SIZE", 1), ("RANK", 0)))
    torch.set_num_threads(max(1, options.threads // workers))
    os.environ["PFL_PYTORCH_DEVICE"] = options.device
    _without_accountants()
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    device = options.device
    torch.manual_seed(1000 * options.seed + rank)  # workers drop out differently
    # pfl draws its own seeds from NumPy's global generator.
    np.random.seed(options.seed)  # noqa: NPY002
    data = load_data(options.data, "cnn")
    plan = load_plan(plan_file(options.plan, "cnn", options.seed))
    total = options.warmup + options.rounds
    users = [
        (torch.from_numpy(data.x[start : start + n]).to(device),
         torch.from_numpy(data.y[start : start + n]).long().to(device))
        for start, n in zip(data.starts, data.sizes, strict=True)
    ]  # fmt: skip

    # pfl asks for one user at a time: here for those that Taciturn draws, in that order.
    slots = ((t, slot) for t in range(total) for slot in range(COHORT))

    def user(which: tuple[int, int]) -> Any:
        client = plan.cohorts[which]
        x, y = users[client]
        order = torch.from_numpy(plan.order(*which, len(y))).to(device)
        return PyTorchTensorDataset((x[order], y[order]), eval_kwargs={"eval": True})

    dataset = FederatedDataset(user, lambda: next(slots))
    module = Model(dropout=not options.no_dropout)
    module.start_from(plan.weights)
    module.to(device)
    model = PyTorchModel(
        module, torch.optim.SGD, central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0)
    )
    laps = Laps(wait_for(device))

    class Clock(TrainingProcessCallback):
        def on_train_begin(self, *, model: Any) -> Any:
            laps.mark()
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: Any, model: Any, *, central_iteration: int
        ) -> tuple[bool, Any]:
            laps.mark()
            return False, Metrics()

    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=total,
            # pfl tests users before and after training in every so manieth round, from the first
            # on: never in a timed one.
            evaluation_frequency=total + 1,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(dataset, dataset, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=BATCH["cnn"],
            local_num_epochs=EPOCHS,
            local_learning_rate=LR,
            local_max_grad_norm=CLIP,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Clock()],
        send_metrics_to_platform=False,
    )

    if rank:
        return
    test = (torch.from_numpy(data.test_x).to(device), torch.from_numpy(data.test_y).long())
    report(
        options.out,
        side="pfl-research" if workers == 1 else f"pfl-research, {workers} processes",
        seconds=laps.seconds[options.warmup :],
        examples=examples_of(data, plan, range(options.warmup, total)),
        weights=sum(w.numel() for w in trained(module)),
        versions=versions("pfl", "torch", "numpy"),
        device=device_name(device),
        **evaluate(module, test[0], test[1].to(device)),
    )


if __name__ == "__main__":
    main()
