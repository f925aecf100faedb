"""Without nvflare there is nothing to collect here."""

import sys
import warnings
from pathlib import Path

collect_ignore_glob = []
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of what they import
        import flwr  # noqa: F401
        import nvflare  # noqa: F401
except ImportError:
    collect_ignore_glob = ["*"]
# The federation of the tests of Flower, which has the same clients.
sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))
