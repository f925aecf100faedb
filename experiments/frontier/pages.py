"""Writes the tables of frontier.md, and what frontier/ has beside JSON: python -m experiments.frontier.pages"""

from dataclasses import replace
from itertools import groupby
from pathlib import Path

from taciturn.frontier import make
from taciturn.frontier.experiments import MAIN
from taciturn.frontier.front import points
from taciturn.frontier.policies import ENTRIES
from taciturn.studies.results import content, read
from taciturn.studies.table import Table

PAGE, FOLDER = (Path(__file__).with_name(name) for name in ("README.md", "results"))
SETTINGS = ("rounds", "cohort", "epochs", "batch", "lr", "clip")

experiments, ends, rivals = [], {}, []
for place, experiment in enumerate(MAIN, 1):
    file = content(FOLDER / f"{experiment.name}.json")
    arms = {run["arm"]: run["policy"] for run in file["runs"]}
    result = read(replace(experiment, arms=arms), FOLDER)
    make.written(result, FOLDER)
    experiments.append((experiment.title, result.data["clients"], f"{result.size:,}",
                        *map(file["settings"].get, SETTINGS), len(result.arms["full"].seeds),
                        "; ".join(sorted({p.device for p in result.pieces}))))  # fmt: skip
    for p in points(result):
        gap = f"{p.gap.mean:+.2f} ± {p.gap.half:.2f}; {p.share.mean():.3g} %" if p.gap else ""
        row = ends.setdefault(p.name, [p.name, *[None] * len(MAIN)])
        row[place] = (gap or f"{p.accuracy.mean():.2f} %") + " ●" * p.on_front
for alike, some in groupby(ENTRIES, lambda entry: (entry.reference, entry.differs)):
    rivals.append(("; ".join(f"{entry.name}: `{entry}`" for entry in some), *alike))
text = PAGE.read_text("utf-8")
for name, *table in (
    ("experiments", ("", "clients", "weights", *SETTINGS, "seeds", "device"), experiments),
    ("ends", ("policy", *(experiment.title for experiment in MAIN)), list(ends.values())),
    ("rivals", ("policies", "whose idea", "how it differs"), rivals),
):
    before, begin, rest = text.partition(f"<!-- table: {name} -->\n")
    text = before + begin + Table("", *table).markdown() + rest[rest.index("<!-- end -->") :]
PAGE.write_text(text, "utf-8")
