"""`python -m experiments.paper`."""

from pathlib import Path

from experiments.common.command import Study
from experiments.paper import paths, rounding
from experiments.paper.experiments import EXPERIMENTS
from experiments.paper.figures import FIGURES
from experiments.paper.tables import TABLES

STUDY = Study(
    "experiments.paper",
    Path(__file__).with_name("README.md"),
    EXPERIMENTS,
    TABLES,
    FIGURES,
    other={paths.NAME: paths.run, rounding.NAME: rounding.run},
)

if __name__ == "__main__":
    STUDY.main()
