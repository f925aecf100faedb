"""`python -m experiments.frontier`."""

from pathlib import Path

from experiments.common.command import Study, only
from experiments.frontier.experiments import EXPERIMENTS, MAIN
from experiments.frontier.tables import TABLES, frontier
from taciturn.frontier.front import draw

STUDY = Study(
    "experiments.frontier",
    Path(__file__).with_name("README.md"),
    EXPERIMENTS,
    TABLES,
    figures={one.name: only(one.name, lambda result: draw(frontier(result))) for one in MAIN},
)

if __name__ == "__main__":
    STUDY.main()
