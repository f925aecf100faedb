"""The Shakespeare LSTM in plain PyTorch: `nn.LSTM`, cuDNN's on a GPU, clients one after another."""

from __future__ import annotations

import torch
from common import (
    BATCH,
    Laps,
    arguments,
    examples_of,
    load_data,
    load_plan,
    plan_file,
    report,
    versions,
)
from torch_models import CharLSTM, device_name, evaluate, train_locally, trained, wait_for


def main() -> None:
    options = arguments(__doc__ or "")
    torch.set_num_threads(options.threads)
    device = options.device
    data = load_data(options.data, "lstm")
    plan = load_plan(plan_file(options.plan, "lstm", options.seed))
    x, y, test_x, test_y = (
        torch.from_numpy(array).long().to(device)
        for array in (data.x, data.y, data.test_x, data.test_y)
    )
    model = CharLSTM()
    model.start_from(plan.weights)
    model.to(device)
    weights = trained(model)
    total = options.warmup + options.rounds

    laps = Laps(wait_for(device))
    laps.mark()
    for t in range(total):
        cohort = plan.cohorts[t]
        examples = data.sizes[cohort].sum()
        with torch.no_grad():
            server = [w.clone() for w in weights]
            mean = [torch.zeros_like(w) for w in weights]
        for slot, client in enumerate(cohort):
            size, start = int(data.sizes[client]), int(data.starts[client])
            rows = torch.from_numpy(start + plan.order(t, slot, size)).to(device)
            train_locally(model, x[rows], y[rows], BATCH["lstm"])
            with torch.no_grad():
                torch._foreach_add_(mean, list(weights), alpha=size / float(examples))
                torch._foreach_copy_(list(weights), server)
        with torch.no_grad():
            torch._foreach_copy_(list(weights), mean)
        laps.mark()

    report(
        options.out,
        side="PyTorch LSTM, client by client",
        seconds=laps.seconds[options.warmup :],
        examples=examples_of(data, plan, range(options.warmup, total)),
        weights=sum(w.numel() for w in weights),
        versions=versions("torch", "numpy"),
        device=device_name(device),
        **evaluate(model, test_x, test_y),
    )


if __name__ == "__main__":
    main()
