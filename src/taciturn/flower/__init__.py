"""Real federations with Flower: two lines turn an app into one whose clients can stay silent.

    app = ClientApp(mods=[taciturn.flower.speak()])                     # in the ClientApp
    strategy = taciturn.flower.Taciturn(FedAvg())                       # in the ServerApp

Clients need flwr and NumPy alone. See docs/flower.md.
"""

from importlib.metadata import version

from taciturn.errors import MissingExtra, install, require

require("flwr", "flower")
if tuple(map(int, version("flwr").split(".")[:2])) < (1, 40):
    raise MissingExtra(
        f"`taciturn.flower` needs flwr 1.40 or later, this is {version('flwr')}. "
        + install("flower")
    )

from taciturn.flower.mod import speak  # noqa: E402
from taciturn.flower.strategy import Taciturn  # noqa: E402

__all__ = ["Taciturn", "speak"]
