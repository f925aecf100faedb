"""An experiment with a reason for every setting, and how it is run piece by piece."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common import pieces
from experiments.common.pieces import Options, Say
from experiments.common.results import Results, content, results_of
from taciturn.core.policy import parse
from taciturn.data import sources
from taciturn.errors import DataError, RunError

MATCHED = "?"  # the probability of an arm that speaks as often as an adaptive one
NEAR = 0.01  # a probability as near as this to the adaptive arm's rate is kept


class Setting(NamedTuple):
    """A value and why it is that one."""

    value: Any
    why: str


@dataclass(frozen=True)
class Experiment:
    """Policies on one task, with a reason for every setting.

    Attributes:
      name: of the experiment, and of its file.
      title: for tables and figures.
      task: what is learned.
      settings: of `taciturn.simulate`.
      arms: a name and a policy each. The probability of `random:?+…` is the mean rate at which
        clients speak in the adaptive arm with the same stand-in.
      options: of the task.
      seeds: how many.
      seeds_of: how many an arm has, where these are others.
      side_by_side: how many runs a piece has on a GPU; None for all.
      own: settings of single arms, by their names; such an arm runs by itself.
      file: of a task that takes one file, its place below the folder of the data.
    """

    name: str
    title: str
    task: str
    settings: Mapping[str, Setting]
    arms: Mapping[str, str]
    options: Mapping[str, Setting] = field(default_factory=dict)
    seeds: int = 5
    seeds_of: Mapping[str, int] = field(default_factory=dict)
    side_by_side: int | None = None
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    file: str | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The settings without reasons."""
        return {name: setting.value for name, setting in self.settings.items()}

    @property
    def task_options(self) -> dict[str, Any]:
        """The options of the task without reasons."""
        return {name: setting.value for name, setting in self.options.items()}

    def side_by_side_arms(self) -> Iterator[tuple[Mapping[str, Any], dict[str, str]]]:
        """The arms that can run side by side, each time with the settings that are theirs alone."""
        yield {}, {name: text for name, text in self.arms.items() if name not in self.own}
        for name in self.arms:
            if name in self.own:
                yield self.own[name], {name: self.arms[name]}

    def groups(self, seeds: int | None = None) -> Iterator[tuple[int, dict[str, str]]]:
        """Arms that have as many seeds, the matched ones after those that they are matched to."""
        for matched in (False, True):
            together: dict[int, dict[str, str]] = {}
            for arm, text in self.arms.items():
                if (MATCHED in text) == matched:
                    count = seeds or self.seeds_of.get(arm, self.seeds)
                    together.setdefault(count, {})[arm] = text
            yield from together.items()

    def run(
        self, options: Options, say: Say, seeds: int | None = None, rounds: int | None = None
    ) -> Results:
        """All runs of the experiment; those that its file lacks are made."""
        if self.file is not None:
            options = options._replace(data=self._data(options.data))
        settings = dict(self.settings)
        if rounds is not None:
            settings["rounds"] = settings["rounds"]._replace(value=rounds)
        for count, arms in self.groups(seeds):
            texts = {arm: self._policy(arm, options.folder) for arm in arms}
            again = [arm for arm in options.again if arm in arms]
            part = replace(self, arms=texts, seeds=count, settings=settings)
            pieces.run(part, options._replace(again=again), say)
        return self.read(options.folder)

    def read(self, folder: Path) -> Results:
        """What the experiment's file has; nothing is run."""
        path = folder / f"{self.name}.json"
        if not path.exists():
            raise RunError(f"{path} is missing: the experiment {self.name} has not been run.")
        return results_of(self, content(path))

    def missing(self, folder: Path) -> dict[str, int]:
        """How many seeds each arm lacks; arms that lack none are left out."""
        there = self.read(folder).arms if (folder / f"{self.name}.json").exists() else {}
        lacking = {
            arm: count - len(there[arm].seeds) if arm in there else count
            for count, arms in self.groups()
            for arm in arms
        }
        return {arm: count for arm, count in lacking.items() if count > 0}

    def _policy(self, arm: str, folder: Path) -> str:
        """The policy of an arm; a matched one keeps its probability while that is near."""
        text = self.arms[arm]
        if MATCHED not in text:
            return text
        there = self.read(folder)
        adaptive = there.arms[partner(arm)].figure("spoke")
        assert adaptive is not None
        rate = float(adaptive.mean()) / there.cohort
        if arm in there.arms:
            was = there.arms[arm].policy
            rule, _, rest = was.partition("+")
            if rest == text.partition("+")[2] and abs(float(rule.partition(":")[2]) - rate) < NEAR:
                return was
        return str(parse(text.replace(MATCHED, f"{rate:.4f}")))

    def _data(self, data: Path | None) -> Path:
        folder = sources.given(data)
        if folder is None:
            raise DataError(
                f"{self.title} needs {self.file}: `--data` or TACITURN_DATA names the folder that "
                f"it lies in."
            )
        return folder if folder.is_file() else folder / str(self.file)


def partner(arm: str) -> str:
    """The adaptive arm that a random one is matched to."""
    return arm.replace("random", "adaptive", 1)
