"""The files of the experiments that a folder has; nothing is run."""

from pathlib import Path
from typing import Any

from experiments.paper import paths
from experiments.paper.experiments import EXPERIMENTS
from taciturn import runs
from taciturn.errors import RunError
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import Results, content, results_of

# What a user may choose, and what says nothing of a result.
_FREE = ("rounds", "precision", "evaluate_every")


def there(folder: Path, seeds: int | None = None) -> dict[str, Results]:
    """Every experiment that was run, by its name, of the first `seeds` seeds or of all."""
    found = {}
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.json"
        if path.exists():
            has = content(path)
            _check(path, experiment, has)
            found[name] = results_of(experiment, has, seeds)
    return found


def _check(path: Path, experiment: Experiment, has: dict[str, Any]) -> None:
    """Raises if a file has other settings than its experiment: its numbers would be misread."""
    wanted = runs.to_json(_fixed(experiment.numbers()))
    found = runs.to_json(_fixed(has["settings"]))
    if wanted != found:
        raise RunError(f"{path} was made with {found}, and {experiment.name} has {wanted}.")


def _fixed(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: settings[key] for key in sorted(settings) if key not in _FREE}


def measured_paths(folder: Path) -> dict[str, Any]:
    """The file of the illustration, or nothing where it is not there."""
    path = folder / f"{paths.NAME}.json"
    if not path.exists():
        return {}
    found: dict[str, Any] = runs.read_json(path)
    if "data" not in found or not all(set(paths.CONTROLS) <= set(one) for one in found["measured"]):
        raise RunError(f"{path} is of an older version: remove it, and run `{paths.NAME}` again.")
    return found
