"""Runs or submits a job: the recipe that the tests have in common.

python tests/nvflare/job.py --policy full+eden:1 --rounds 4 [--folder F] --workspace W
python tests/nvflare/job.py ... --kit STARTUP_KIT      submits it to a federation
"""

import argparse
from pathlib import Path

import numpy as np
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.client.config import TransferType
from nvflare.recipe.prod_env import ProdEnv
from nvflare.recipe.sim_env import SimEnv

import taciturn.nvflare

SHAPE, CLIENTS, SEED = (25, 40), 3, 7
SCRIPT = Path(__file__).with_name("train.py")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="job")
    parser.add_argument("--policy", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--folder")
    parser.add_argument("--diff", action="store_true")
    parser.add_argument("--external", action="store_true")
    parser.add_argument("--script-args", default="")
    parser.add_argument("--workspace")
    parser.add_argument("--kit")
    options = parser.parse_args()
    recipe = NumpyFedAvgRecipe(
        name=options.name, model=np.zeros(SHAPE).tolist(), min_clients=CLIENTS,
        num_rounds=options.rounds, train_script=str(SCRIPT), train_args=options.script_args,
        launch_external_process=options.external,
        params_transfer_type=TransferType.DIFF if options.diff else TransferType.FULL,
        aggregator=taciturn.nvflare.Taciturn(options.policy, folder=options.folder, seed=SEED),
    )  # fmt: skip
    taciturn.nvflare.speak(recipe)
    if options.kit:
        env = ProdEnv(startup_kit_location=options.kit, login_timeout=30.0)
    else:
        env = SimEnv(num_clients=CLIENTS, workspace_root=options.workspace)
    recipe.execute(env)


if __name__ == "__main__":
    main()
