"""Real federations with Flower: two lines turn an app into one whose clients can stay silent.

    app = ClientApp(mods=[laconic.flower.speak()])                     # in the ClientApp
    strategy = laconic.flower.Laconic(FedAvg(), "adaptive+ou")         # in the ServerApp

Clients need flwr and NumPy alone. See docs/flower.md.
"""

from __future__ import annotations

from importlib.metadata import version

from laconic.errors import MissingExtra, require

require("flwr", "flower")
if tuple(map(int, version("flwr").split(".")[:2])) < (1, 40):
    raise MissingExtra(
        f"`laconic.flower` needs flwr 1.40 or later, this is {version('flwr')}. "
        "Install it with: pip install 'laconic[flower]'"
    )

from laconic.flower.mod import speak  # noqa: E402
from laconic.flower.strategy import Laconic  # noqa: E402

__all__ = ["Laconic", "speak"]
