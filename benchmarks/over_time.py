"""A budget spent evenly, or little early and more late: accuracy at the end of long runs.

    python benchmarks/over_time.py emnist-long --seeds 3
    python benchmarks/over_time.py shakespeare-long --seeds 1

The settings are the frontier's experiment of that name. All arms upload the same bytes in the run:
*rising* has a fifth of the even share in the first round and nine fifths in the last, *falling* the
reverse. Differences to *even* are paired by seed.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pages import RESULTS

import taciturn
from taciturn.core.amounts import Amount
from taciturn.core.policy import Policy, parse
from taciturn.core.tally import Tally
from taciturn.frontier.experiments import EXPERIMENTS
from taciturn.report.versions import versions
from taciturn.tasks import load

FIRST = {"even": 1.0, "rising": 0.2, "falling": 1.8}  # share of the first round, 1 for the mean


def spent(share: str, first: float, rounds: int) -> Policy:
    """A budget whose share goes evenly from `first` times the mean to 2 − `first` times it."""
    policy, mean = parse(f"budget:{share}"), float(Amount(share))

    def learn(state: Any, tally: Tally) -> Any:
        share = mean * (first + 2 * (1 - first) * (state.rounds + 1) / rounds)
        return policy.rule.learn(state._replace(share=share), tally)

    rule = replace(policy.rule, learn=learn)
    return replace(policy, rule=rule)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    experiment = EXPERIMENTS[options.experiment]
    settings = experiment.numbers()
    if options.rounds:
        settings |= {"rounds": options.rounds, "evaluate_every": max(1, options.rounds // 10)}
    arms = {name: spent(options.budget, first, settings["rounds"]) for name, first in FIRST.items()}
    began = time.perf_counter()
    histories = taciturn.compare(
        load(experiment.task, **experiment.task_options()), arms, seeds=options.seeds,
        precision=options.precision, **settings,
    )  # fmt: skip
    rows: dict[str, Any] = {}
    for name, history in histories.items():
        found = 100 * history.accuracy[:, -1]
        even = 100 * histories["even"].accuracy[:, -1]
        share = history.summary()["upload_share"]
        rows[name] = {"accuracy": found.tolist(), "upload_share": share,
                      "difference": (found - even).tolist()}  # fmt: skip
        print(f"{name:8} {found.mean():6.2f} {(found - even).mean():+6.2f} {share:.4f} %")
    return {"experiment": options.experiment, "budget": options.budget, "settings": settings,
            "seeds": options.seeds, "precision": options.precision, "first": FIRST,
            "seconds": round(time.perf_counter() - began, 1), "arms": rows}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--budget", default="0.2%")
    parser.add_argument("--rounds", type=int, help="instead of the experiment's")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    taciturn.prepare()
    found = measure(options)
    path = options.json or RESULTS / f"over_time_{options.experiment}.json"
    path.write_text(json.dumps(found | {"versions": versions()}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
