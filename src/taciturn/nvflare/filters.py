"""The client's filters, of which one keeps the model that came and the other writes what training
changed; and `speak`, which adds them to a recipe."""

import logging
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.client.config import TransferType

from taciturn.errors import InputError
from taciturn.federation import client
from taciturn.federation.layout import Arrays, Layout
from taciturn.federation.protocol import Request, remark_of
from taciturn.nvflare.aggregator import Taciturn
from taciturn.nvflare.messages import ANSWER, NODES, REMARK, REQUEST, arrays_of, metrics_of

log = logging.getLogger("taciturn")

_TASK = "taciturn.task"  # the property with a request and the model that came with it
# By the module of a recipe.
_REFUSED = {
    "fedavg_he": "homomorphic encryption hides the norms that the server checks, and cannot add up "
    "codes",
    "scaffold": "Scaffold sends control variates beside the weights, and no code has them",
    "swarm": "Swarm has no server that keeps the state of a policy",
}


class Listen(Filter):
    """Keeps the model that a task brings: scripts may train in its arrays."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        record = shareable.get_header(REQUEST)
        came = {} if record is None else arrays_of(from_shareable(shareable).data)
        before = {name: array.copy() for name, array in came.items()}
        fl_ctx.set_prop(_TASK, (record, before), private=True, sticky=False)
        return shareable


class Speak(Filter):
    """Takes the weights out of a result, or writes the difference in the server's codec.

    Args:
      required: for a site's own configuration: a result of training leaves only as an answer to a
        request of `Taciturn`, and otherwise an error does.
    """

    def __init__(self, required: bool = False) -> None:
        super().__init__()
        self.required = required
        self._residual: client.Residual | None = None

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        record, before = fl_ctx.get_prop(_TASK) or (None, {})
        if shareable.get_return_code() not in (None, ReturnCode.OK):
            return shareable
        try:
            if record is not None:
                self._answer(shareable, record, before, fl_ctx.get_identity_name())
            elif self.required:
                raise InputError("the server has not asked for an answer")
        except InputError as error:
            if self.required:
                log.warning("taciturn: the result stays here: %s", error)
                return make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR)
            # Sent whole, it counts like any other, if the server can read it.
            log.warning("taciturn: the result is left as it is: %s", error)
            dxo = from_shareable(shareable)
            dxo.set_meta_prop(REMARK, remark_of(error))
            dxo.update_shareable(shareable)
        return shareable

    def _answer(self, shareable: Shareable, record: Any, before: Arrays, node: str) -> None:
        """Writes the answer over the parameters of a result."""
        dxo = from_shareable(shareable)
        if ANSWER in dxo.data:
            return  # a filter of the site's own was here
        if dxo.data_kind not in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF):
            raise InputError(f"it is of the kind {dxo.data_kind}, and must be weights")
        if algorithm := dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM):
            raise InputError(f"its weights were processed by {algorithm}")
        silence, accepted = record[NODES].get(node, (0, 0))
        asked = Request.read({**record, "silence": silence, "accepted": accepted})
        after = arrays_of(dxo.data)
        if dxo.data_kind == DataKind.WEIGHT_DIFF:
            after = {name: before[name] + after[name] for name in after if name in before}
        metrics = metrics_of(dxo.meta, dxo.get_meta_prop(MetaKey.INITIAL_METRICS))
        answer = client.answer(asked, before, after, metrics, node, kept=self._residual)
        self._residual = answer.residual or self._residual
        if asked.coded or not answer.speaks:
            after = Layout.of(before, asked.exclude).rest_of(after)
        data = {ANSWER: answer.report.packed() + answer.code, **after}
        DXO(DataKind.WEIGHT_DIFF, data, dxo.meta).update_shareable(shareable)


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
