"""What turns a recipe into one with a policy."""

from typing import Any

from nvflare.client.config import TransferType

from taciturn.errors import InputError
from taciturn.nvflare.aggregator import Taciturn
from taciturn.nvflare.filters import Listen, Speak

# By the module of a recipe.
_REFUSED = {
    "fedavg_he": "homomorphic encryption hides the norms that the server checks, and cannot add up "
    "codes",
    "scaffold": "Scaffold sends control variates beside the weights, and no code has them",
    "swarm": "Swarm has no server that keeps the state of a policy",
}


def speak(recipe: Any) -> None:
    """Adds the client's filters to a recipe whose aggregator is `Taciturn`.

    Scripts, in process or not, stay as they are. The filters make the difference themselves, so the
    parameters of a recipe with `TransferType.DIFF` reach them whole. taciturn must be installed at
    every site.
    """
    for one in type(recipe).__mro__:
        if reason := _REFUSED.get(one.__module__.rpartition(".")[2]):
            raise InputError(f"{type(recipe).__name__} cannot be combined with Taciturn: {reason}.")
    if not isinstance(getattr(recipe, "aggregator", None), Taciturn):
        raise InputError(
            f"{type(recipe).__name__} must have `aggregator=taciturn.nvflare.Taciturn(...)`, got "
            f"{getattr(recipe, 'aggregator', None)!r}."
        )
    if recipe.aggregator.folder is not None and "fedopt" in type(recipe).__module__:
        raise InputError(
            "`folder=` goes with FedAvg alone: NVFlare does not save what FedOpt's optimiser has "
            "learned, and a job that is submitted again would go on without it."
        )
    recipe.add_client_input_filter(Listen(), tasks=["train"])
    recipe.add_client_output_filter(Speak(), tasks=["train"])
    job = recipe._job
    job.set_app_packages([*job.job.app_packages, "taciturn"])  # it is not copied into the job
    for app in job._deploy_map.values():
        for item in getattr(app.app_config, "executors", ()):
            if hasattr(item.executor, "_params_transfer_type"):
                item.executor._params_transfer_type = TransferType.FULL
