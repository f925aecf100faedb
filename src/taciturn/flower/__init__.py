"""Real federations with Flower: two lines turn an app into one whose clients can stay silent.

    app = ClientApp(mods=[taciturn.flower.speak()])                     # in the ClientApp
    strategy = taciturn.flower.Taciturn(FedAvg())                       # in the ServerApp

Clients need flwr and NumPy alone. See docs/flower.md.
"""

from taciturn.errors import require

require("flwr", "flower", "1.40")

from taciturn.flower.mod import speak  # noqa: E402
from taciturn.flower.strategy import Taciturn  # noqa: E402

__all__ = ["Taciturn", "speak"]
