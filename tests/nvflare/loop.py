"""NVFlare's aggregator and filters in one process, without its runners and network."""

import copy
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.decomposers import numpy_decomposers
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.fuel.utils import fobs

from taciturn.federation.protocol import unpack
from taciturn.nvflare import Taciturn
from taciturn.nvflare.filters import Listen, Speak
from taciturn.nvflare.messages import ANSWER

numpy_decomposers.register()  # as NVFlare's processes do

Step = Callable[[int, dict[str, np.ndarray]], tuple[dict[str, np.ndarray], float]]


class Loop:
    """A controller of FedAvg's kind and its clients.

    Args:
      aggregator: the server's.
      model: where it begins.
      step: `(client, parameters) -> (trained parameters, examples)`.
      names: the clients' identities.
      rounds: of the whole job.
      diff: whether scripts return differences.
      plain: clients without filters.
      tamper: `(client, result) -> result`, for what a client can do wrong.
    """

    def __init__(
        self, aggregator: Taciturn, model: dict[str, Any], step: Step, names: Sequence[str],
        rounds: int, diff: bool = False, plain: Sequence[int] = (),
        tamper: Callable[[int, Shareable], Shareable] | None = None,
    ) -> None:  # fmt: skip
        self.aggregator, self.step, self.names = aggregator, step, list(names)
        self.diff, self.plain, self.tamper = diff, plain, tamper or (lambda k, result: result)
        self.filters = [(Listen(), Speak()) for _ in names]
        self.controller = SimpleNamespace(
            start_round=0, num_rounds=rounds, num_clients=len(self.names), model=None
        )
        self.context = FLContext()
        clients = [SimpleNamespace(name=name) for name in self.names]
        engine = SimpleNamespace(get_clients=lambda: clients)
        self.put(ReservedKey.ENGINE, engine)
        runner = SimpleNamespace(current_wf=SimpleNamespace(controller=self.controller))
        self.put(FLContextKey.RUNNER, runner)
        self.codes: list[list[bytes]] = []
        self.results: list[FLModel] = []
        self.fire(EventType.START_RUN)
        self.params = dict(model)
        self.put(AppConstants.GLOBAL_MODEL, make_model_learnable(self.params, {}))
        self.fire(AppEventType.INITIAL_MODEL_LOADED)

    def put(self, key: str, value: Any) -> None:
        self.context.set_prop(key, value, private=True, sticky=False)

    def fire(self, event: str) -> None:
        self.aggregator.handle_event(event, self.context)

    def run(self, rounds: int | None = None) -> dict[str, Any]:
        """All rounds that are left, or so many; the model after them."""
        first, left = self.controller.start_round, self.controller.num_rounds
        for t in range(first, first + (left if rounds is None else rounds)):
            self.round(t)
        if rounds is None:
            self.fire(EventType.END_RUN)
        return self.params

    def round(self, t: int) -> None:
        self.aggregator.reset_stats()
        task = FLModelUtils.to_shareable(FLModel(params=self.params, current_round=t))
        sent: Shareable | None = None
        self.codes.append([])
        for k, name in enumerate(self.names):
            self.context.set_peer_context(who(name))
            self.put(AppConstants.TRAIN_SHAREABLE, task)
            self.fire(AppEventType.BEFORE_TRAIN_TASK)
            sent = copy.deepcopy(task) if sent is None else sent  # one copy for all
            result = self.client(k, fobs.loads(fobs.dumps(sent)))
            model = FLModelUtils.from_shareable(fobs.loads(fobs.dumps(result)))
            model.meta["client_name"] = name
            if model.params:
                self.aggregator.accept_model(model)
        self.results.append(self.aggregator.aggregate_model())
        model = FLModelUtils.update_model(
            FLModel(params=self.params, params_type=ParamsType.FULL), self.results[-1]
        )
        self.params = model.params
        self.put(AppConstants.GLOBAL_MODEL, make_model_learnable(self.params, {}))
        self.fire(AppEventType.AFTER_SHAREABLE_TO_LEARNABLE)

    def client(self, k: int, task: Shareable) -> Shareable:
        """The result of a client as it leaves its site."""
        context = who(self.names[k])
        listen, speak = self.filters[k]
        if k not in self.plain:
            task = listen.process(task, context)
        params = dict(from_shareable(task).data)
        before = {name: array.copy() for name, array in params.items()} if self.diff else {}
        trained, examples = self.step(k, params)
        kind = ParamsType.DIFF if self.diff else ParamsType.FULL
        if self.diff:
            trained = {name: trained[name] - before[name] for name in trained}
        result = FLModelUtils.to_shareable(FLModel(
            params=trained, params_type=kind, metrics={"loss": float(k)},
            meta={"NUM_STEPS_CURRENT_ROUND": examples},
        ))  # fmt: skip
        if k not in self.plain:
            result = speak.process(result, context)
        data = from_shareable(result).data
        self.codes[-1].append(unpack(data[ANSWER])[2] if ANSWER in data else b"")
        return self.tamper(k, result)


def who(name: str) -> FLContext:
    context = FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=True)
    return context


def changed(edit: Callable[[DXO], None], client: int) -> Callable[[int, Shareable], Shareable]:
    """Changes what one client sends."""

    def tamper(k: int, result: Shareable) -> Shareable:
        if k == client:
            dxo = from_shareable(result)
            edit(dxo)
            dxo.update_shareable(result)
        return result

    return tamper
