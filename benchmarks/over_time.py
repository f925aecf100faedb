"""A budget spent evenly, or little early and more late: accuracy at the end of a run.

    python benchmarks/over_time.py emnist-long --seeds 3
    python benchmarks/over_time.py shakespeare-long --seeds 1 --shapes even rising steep
    python benchmarks/over_time.py emnist --budgets 0.2% 0.1% --rounds 50

The settings are the frontier's experiment of that name. Every shape of a budget uploads the same
bytes in the run. Round t of T has first + (1 − first)(power + 1)(t / T)^power times the even share:

    even      the same in every round
    rising    from 0.2 to 1.8 times it, in a straight line
    steep     from 0.2 to 2.6 times it, with the square of time
    steeper   from 0.2 to 3.4 times it, with the cube
    falling   from 1.8 to 0.2 times it

Differences to full communication are paired by seed.
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

# The first round's share, 1 for the mean, and the power of time with which it changes.
SHAPES = {
    "even": (1.0, 1),
    "rising": (0.2, 1),
    "steep": (0.2, 2),
    "steeper": (0.2, 3),
    "falling": (1.8, 1),
}


def spent(share: str, shape: str, rounds: int) -> Policy:
    """A budget of so much on average over so many rounds, in this shape."""
    policy, mean = parse(f"budget:{share}"), float(Amount(share))
    first, power = SHAPES[shape]

    def learn(state: Any, tally: Tally) -> Any:
        passed = ((state.rounds + 1) / rounds) ** power
        share = mean * (first + (1 - first) * (power + 1) * passed)
        return policy.rule.learn(state._replace(share=share), tally)

    rule = replace(policy.rule, learn=learn)
    return replace(policy, rule=rule)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    experiment = EXPERIMENTS[options.experiment]
    settings = experiment.numbers()
    if options.rounds:
        settings |= {"rounds": options.rounds, "evaluate_every": max(1, options.rounds // 10)}
    arms: dict[str, Any] = {"full": "full"} | {
        f"{budget} {shape}": spent(budget, shape, settings["rounds"])
        for budget in options.budgets
        for shape in options.shapes
    }
    began = time.perf_counter()
    histories = taciturn.compare(
        load(experiment.task, **experiment.task_options()), arms, seeds=options.seeds,
        precision=options.precision, **settings,
    )  # fmt: skip
    rows: dict[str, Any] = {}
    full = 100 * histories["full"].accuracy[:, -1]
    for name, history in histories.items():
        found = 100 * history.accuracy[:, -1]
        share = history.summary()["upload_share"]
        rows[name] = {"accuracy": found.tolist(), "upload_share": share,
                      "difference": (found - full).tolist()}  # fmt: skip
        print(f"{name:16} {found.mean():6.2f} {(found - full).mean():+6.2f} {share:.4f} %")
    return {"experiment": options.experiment, "settings": settings, "seeds": options.seeds,
            "precision": options.precision, "shapes": SHAPES,
            "seconds": round(time.perf_counter() - began, 1), "arms": rows}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--budgets", nargs="+", default=["0.2%"])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["even", "rising", "steep"])
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
