"""An experiment: policies on one task, with the same settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Experiment:
    """Policies on one task, with the same settings.

    Attributes:
      name: of the experiment, and of its file.
      title: for tables and pictures.
      task: the name of the task.
      options: of the task.
      settings: of `taciturn.simulate`.
      arms: a name and a policy each.
      seeds: how many.
      side_by_side: how many runs go side by side on a GPU; None for all.
      own: settings of single arms, by their names; such an arm runs by itself.
    """

    name: str
    title: str
    task: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    arms: Mapping[str, str]
    seeds: int = 5
    side_by_side: int | None = None
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def groups(self) -> Iterator[tuple[Mapping[str, Any], dict[str, str]]]:
        """The arms that can run side by side, each time with the settings that are theirs alone."""
        yield {}, {name: text for name, text in self.arms.items() if name not in self.own}
        for name in self.arms:
            if name in self.own:
                yield self.own[name], {name: self.arms[name]}
