"""Real federations with NVIDIA FLARE: two lines in a recipe give it a policy.

    recipe = FedAvgRecipe(..., aggregator=taciturn.nvflare.Taciturn("budget:20kB"))
    taciturn.nvflare.speak(recipe)

The client script stays as it is. Clients need nvflare and NumPy alone. See docs/nvflare.md.
"""

from taciturn.errors import require

require("nvflare", "nvflare", "2.9")

from taciturn.nvflare.aggregator import Taciturn  # noqa: E402
from taciturn.nvflare.filters import speak  # noqa: E402

__all__ = ["Taciturn", "speak"]
