"""An experiment: policies on one task, with the same settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Experiment:
    """Policies on one task, with the same settings; `own` has settings of single arms."""

    name: str  # of the experiment, and of its file
    title: str  # for tables and pictures
    task: str
    options: Mapping[str, Any]  # of the task
    settings: Mapping[str, Any]  # of `taciturn.simulate`
    arms: Mapping[str, str]  # a name and a policy each
    seeds: int = 5  # how many
    side_by_side: int | None = None  # how many runs are a piece on a GPU; None for all
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def groups(self) -> Iterator[tuple[Mapping[str, Any], dict[str, str]]]:
        """The arms that can run side by side, each time with the settings that are theirs alone."""
        yield {}, {name: text for name, text in self.arms.items() if name not in self.own}
        for name in self.arms:
            if name in self.own:
                yield self.own[name], {name: self.arms[name]}
