"""Without flwr there is nothing to collect here."""

import warnings

collect_ignore_glob = []
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of what it imports
        import flwr  # noqa: F401
except ImportError:
    collect_ignore_glob = ["*"]
