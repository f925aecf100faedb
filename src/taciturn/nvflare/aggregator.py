"""The aggregator: it asks, reads what comes with suspicion, and hands on the mean update.

No server filter decodes: an error there ends the job. Whichever controller there is takes the step.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.fuel.utils import fobs

from taciturn.core.policy import parse
from taciturn.errors import InputError, TaciturnError
from taciturn.federation.aggregation import Round, mean_of
from taciturn.federation.layout import cast, nbytes_of
from taciturn.federation.protocol import unpack
from taciturn.federation.replies import Reply, Traffic
from taciturn.federation.server import Server
from taciturn.nvflare import messages
from taciturn.nvflare.messages import arrays_of, like


class Taciturn(ModelAggregator):
    """An aggregator whose clients may be silent, and write their updates in a codec.

    Args:
      policy: who speaks, what stands in for the silent, and the codec, as text. By default
        `budget`, 4 kB for each client.
      folder: where the state is saved after every round, on the server; a job that is submitted
        again goes on from it. Use an absolute path.
      absent, exclude, buffers, min_clients, seed, track, weight_limit, norm_limit: as those of
        `taciturn.flower.Taciturn`.
    """

    def __init__(
        self,
        policy: str = "budget",
        *,
        absent: str = "ignore",
        exclude: str | Sequence[str] = (),
        buffers: str | Sequence[str] | None = None,
        min_clients: int | None = None,
        folder: str | None = None,
        seed: int | None = None,
        track: str | None = None,
        weight_limit: float | None = 10.0,
        norm_limit: float | None = 3.0,
    ) -> None:
        super().__init__()
        # NVFlare writes these into the job, and makes the aggregator of them on the server.
        self.policy, self.absent, self.min_clients = f"{policy}", absent, min_clients
        self.exclude = exclude if isinstance(exclude, str) else list(exclude)
        self.buffers = list(buffers) if isinstance(buffers, tuple) else buffers
        self.folder, self.track, self.seed = folder and f"{folder}", track, seed
        self.weight_limit, self.norm_limit = weight_limit, norm_limit
        known = parse(self.policy)
        if known.has_public:
            raise InputError(
                "`down=` is not for NVFlare, which sends all clients the same copy of a task: a "
                "policy without it."
            )
        self._server = Server(
            known, engine="NVFlare", steps=["NVFlare"], compares=False, absent=absent,
            exclude=exclude, buffers=buffers, min_clients=min_clients, folder=folder, seed=seed,
            track=track, weight_limit=weight_limit, norm_limit=norm_limit,
            log=logging.getLogger("taciturn"),
        )  # fmt: skip
        self._stack = ExitStack()
        self._params: dict[str, Any] = {}  # that clients train from; none before the job begins
        self._round: Round | None = None
        self._lines: dict[str, Any] = {}  # the request
        self._replies: list[Reply] = []

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Asks with the first task of a round, saves after the step, ends with the job."""
        super().handle_event(event_type, fl_ctx)
        try:
            if event_type == EventType.START_RUN:
                self._stack.enter_context(self._server.running())
            elif event_type in (AppEventType.INITIAL_MODEL_LOADED, AppEventType.TRAINING_STARTED):
                self._begin(fl_ctx)
            elif event_type == AppEventType.BEFORE_TRAIN_TASK:
                self._ask(fl_ctx)
            elif event_type == AppEventType.AFTER_SHAREABLE_TO_LEARNABLE:
                # The controller has made the next model.
                self._params = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)[ModelLearnableKey.WEIGHTS]
                if self._server.store is not None and self._server.history:
                    self._server.store.save(arrays_of(self._params), {}, {})
            elif event_type == EventType.END_RUN:
                signal = fl_ctx.get_run_abort_signal()  # set where the job is ended early
                if self._server.history and not (signal is not None and signal.triggered):
                    self._server.finish(arrays_of(self._params))
                self._stack.close()
        except TaciturnError as error:
            self.system_panic(f"Taciturn: {error}", fl_ctx)

    def _begin(self, fl_ctx: FLContext) -> None:
        """Finds the state of an earlier job, puts its model into the controller's, and lets it run
        the rounds that are left."""
        if (workflow := fl_ctx.get_prop(FLContextKey.RUNNER).current_wf) is None:
            return  # a controller that loads its model while it starts: there is another event
        controller = workflow.controller
        loaded = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
        params = getattr(controller, "model", None) if loaded is None else loaded.get(
            ModelLearnableKey.WEIGHTS)  # fmt: skip
        params = params.params if isinstance(params, FLModel) else params
        if self._params or not params:
            return
        self._params, server = params, self._server
        names = [("start_round", "num_rounds"), ("_start_round", "_num_rounds")]
        first, count = next(pair for pair in names if hasattr(controller, pair[1]))
        server.rounds = getattr(controller, first) + getattr(controller, count)
        arrays = arrays_of(params)
        server.begin(arrays)
        found, _ = server.find(arrays)
        if found is not None:
            params.update({name: like(found[0][name], params[name]) for name in params})
            setattr(controller, first, server.done)
            setattr(controller, count, max(server.rounds - server.done, 0))

    def _ask(self, fl_ctx: FLContext) -> None:
        """Puts the request into a task. All clients get the copy that the first one is sent."""
        task, server = fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE), self._server
        round = task.get_header(AppConstants.CURRENT_ROUND) + 1
        if self._round is None or self._round.request.round != round:
            self._params = from_shareable(task).data
            clients = [client.name for client in fl_ctx.get_engine().get_clients()]
            controller = fl_ctx.get_prop(FLContextKey.RUNNER).current_wf.controller
            sampled = getattr(controller, "num_clients", None)
            cohort = max(1, min(sampled or len(clients), len(clients)))
            self._replies = []
            self._round = server.open(round, arrays_of(self._params), cohort, messages.WEIGHT)
            known = [(name, server.nodes[name]) for name in clients]
            nodes = {name: [own.in_a_row, own.last_spoke] for name, own in known}
            self._lines = {**self._round.request.written(), messages.NODES: nodes}
        task.set_header(messages.REQUEST, self._lines)
        server.ask(self._round, fl_ctx.get_peer_context().get_identity_name())
        asked, own = len(self._round.asked), len(fobs.dumps(self._lines))
        payload = nbytes_of(self._round.sent)
        self._round.down = Traffic(asked * payload, 0, asked * own, asked * (payload + own))

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Takes a result from a controller of tasks, if it is of this round."""
        now = self._round
        of_round = shareable.get_cookie(AppConstants.CONTRIBUTION_ROUND)
        if now is None or of_round != now.request.round - 1:
            return False
        node = fl_ctx.get_peer_context().get_identity_name()
        self._take(node, now, lambda: FLModelUtils.from_shareable(shareable, fl_ctx))
        return True

    def accept_model(self, model: FLModel) -> None:
        """Takes a result; what is wrong with it is said when the round ends."""
        if self._round is not None:
            self._take(f"{model.meta['client_name']}", self._round, lambda: model)

    def _take(self, node: str, now: Round, result: Callable[[], FLModel]) -> None:
        reply = Reply(node)
        try:
            model = result()
            params, packed = dict(model.params or {}), b""
            if (remark := model.meta.get(messages.REMARK)) is not None:
                reply.remark = f"{remark}"[:300]
            reply.metrics = messages.metrics_of(model.meta, model.metrics)
            if messages.ANSWER in params:
                packed = params.pop(messages.ANSWER)
                reply.report, _, reply.code = unpack(packed)
            reply.arrays = arrays = arrays_of(params)
            payload, full = len(reply.code) + nbytes_of(arrays), nbytes_of(now.sent)
            if reply.report is None and model.params_type == ParamsType.DIFF:
                for name, change in arrays.items():  # what it makes of the model, where it fits
                    if name in now.sent and now.sent[name].shape == change.shape:
                        arrays[name] = np.asarray(now.sent[name] + change)
            own = len(packed) - len(reply.code) + len(fobs.dumps([list(params), reply.metrics]))
            always = nbytes_of(now.layout.rest_of(arrays))
            reply.traffic = Traffic(payload, always, own, full + own)
        except Exception as error:  # whatever a client sends, it does not end the job
            said = "" if isinstance(error, InputError) else f"It cannot be read: {type(error)}: "
            reply.problem = f"{said}{error}"[:300]
        self._replies.append(reply)

    def aggregate_model(self) -> FLModel:
        """The mean update; no parameters where the model stays."""
        now, server = self._round, self._server
        if now is None:
            return FLModel(ParamsType.DIFF, {})
        server.hear(now, self._replies)
        self._round, self._replies = None, []
        mean, info = server.learn(now)
        whole = mean_of(now.everyone, now.layout) if now.everyone else Reply("")
        params = self._changes(now, whole, mean) if info.counts else {}
        server.note(now, info, whole.metrics)
        whole.metrics.pop(messages.WEIGHT, None)
        return FLModel(ParamsType.DIFF, params, metrics=whole.metrics or None)

    def _changes(self, now: Round, whole: Reply, mean: np.ndarray) -> dict[str, Any]:
        """What is added to each parameter; nothing where that would not be finite."""
        changes = {
            layer.name: part.reshape(layer.shape).astype(layer.dtype)
            for layer, part in now.layout.parts(mean)
        }
        for layer in now.layout.rest:
            if layer.dtype.kind in "fiu":  # a flag has no mean
                value = cast(whole.arrays[layer.name], layer.dtype)
                changes[layer.name] = np.asarray(value - now.sent[layer.name], layer.dtype)
        for name, change in changes.items():
            with np.errstate(over="ignore"):
                finite = np.isfinite(now.sent[name] + change).all()
            if not finite:
                now.log.warning(
                    "Taciturn: the mean of round %d makes weights that are not finite, first in "
                    "`%s`: the model stays.", now.request.round, name)  # fmt: skip
                return {}
        return {name: like(change, self._params[name]) for name, change in changes.items()}

    def reset_stats(self) -> None:
        """Forgets what came; a round begins."""
        self._replies = []
