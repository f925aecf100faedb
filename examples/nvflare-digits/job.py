"""Logistic regression on scikit-learn's digits, in NVFlare's simulator."""

import argparse
from pathlib import Path

import numpy as np
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.recipe.sim_env import SimEnv

import taciturn.nvflare


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", default="budget:400B,per=client")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workspace", default="/tmp/nvflare/digits")
    options = parser.parse_args()
    recipe = NumpyFedAvgRecipe(
        name="digits",
        model=np.zeros((65, 10)).tolist(),
        min_clients=3,
        num_rounds=options.rounds,
        train_script=str(Path(__file__).with_name("client.py")),
        aggregator=taciturn.nvflare.Taciturn(options.policy),  # the first line
    )
    taciturn.nvflare.speak(recipe)  # the second line
    recipe.execute(SimEnv(num_clients=3, workspace_root=options.workspace))


if __name__ == "__main__":
    main()
