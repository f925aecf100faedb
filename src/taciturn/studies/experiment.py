"""An experiment: one task, some arms, and a reason for every setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MATCHED = "?"


class Setting(NamedTuple):
    """A value and why it is that one."""

    value: Any
    why: str


@dataclass(frozen=True)
class Experiment:
    """One task, some arms and all settings.

    Attributes:
      name: of the experiment, and of its file.
      title: for tables and figures.
      task: what is learned.
      options: of the task.
      settings: of `taciturn.simulate`; a precision among them holds whatever is asked for.
      arms: a name and a policy each. `random:?+…` takes its probability from the mean rate, over
        seeds, at which clients speak in the adaptive arm with the same stand-in.
      seeds: how many, where nobody asks for another number.
      more_seeds: how many an arm has, where these are more than the others'.
      side_by_side: how many runs a piece has on a GPU; None for all.
      file: of a task that takes one file, its place below the folder of the data.
      own: settings of single arms, by their names; such an arm runs by itself.
    """

    name: str
    title: str
    task: str
    options: Mapping[str, Setting]
    settings: Mapping[str, Setting]
    arms: Mapping[str, str]
    seeds: int = 5
    side_by_side: int | None = None
    file: str | None = None
    more_seeds: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def seeds_of(self, arm: str) -> int:
        """How many seeds an arm has, where nobody asks for another number."""
        return self.more_seeds.get(arm, self.seeds)

    def numbers(self) -> dict[str, Any]:
        """The settings, as `taciturn.simulate` takes them."""
        return {name: setting.value for name, setting in self.settings.items()}

    def apart(self, arms: Mapping[str, str]) -> list[tuple[Mapping[str, Any], dict[str, str]]]:
        """Those of some arms that can run side by side, with settings that are theirs alone."""
        shared = {name: policy for name, policy in arms.items() if name not in self.own}
        alone = [(self.own[name], {name: arms[name]}) for name in arms if name in self.own]
        return [({}, shared), *alone]

    def task_options(self) -> dict[str, Any]:
        return {name: setting.value for name, setting in self.options.items()}


def partner(arm: str) -> str:
    """The adaptive arm that a random one is matched to."""
    return arm.replace("random", "adaptive", 1)
