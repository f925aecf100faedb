"""A real table with text, gaps and dates, from file to comparison in one command.

    python benchmarks/mixed_table.py penguins-raw.csv --json benchmarks/results/mixed_table.json

Penguins of Palmer Station (Gorman et al., 2014; the file is in the package `palmerpenguins`): the
species from 15 columns, a client for each of 190 names of nests' birds. Beside it a pipeline of
scikit-learn is fitted to the same training rows, pooled, and tested on the same rows.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import taciturn
from taciturn import runs
from taciturn.report.versions import versions

CLIENT, LABEL, DATE = "Individual ID", "Species", "Date Egg"
ARMS = ("full", "adaptive+ou", "budget")


def pooled(file: Path) -> float:
    """The accuracy of scikit-learn's pipeline, in %."""
    rows = pandas.read_csv(file)
    numbered = {"row": np.arange(len(rows)), CLIENT: rows[CLIENT], LABEL: rows[LABEL]}
    task = taciturn.table(numbered, client=CLIENT, label=LABEL, standardise=False)
    _, test, _ = task.clients.hold_out(task.hold_out)
    tested = np.isin(numbered["row"], test["x"])
    y, x = rows[LABEL], rows.drop(columns=[LABEL, CLIENT, DATE])
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )
    fitted = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(x[~tested], y[~tested])
    return 100 * float(fitted.score(x[tested], y[tested]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "taciturn", "run", "table", "--data", str(options.file),
                   "--client", CLIENT, "--label", LABEL, "--seeds", str(options.seeds), "--json",
                   "--quiet", "--out", f"{folder}/run"]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    summary: dict[str, Any] = json.loads(done.stdout)
    result = {
        "columns": summary["columns"], "tested_on": summary["tested_on"],
        "seconds": round(seconds, 1), "scikit_learn": pooled(options.file),
        "arms": {name: {key: summary["arms"][name][key] for key in ("accuracy", "upload_bytes")}
                 for name in ARMS},
        "versions": versions(),
    }  # fmt: skip
    print(runs.to_json(result))
    if options.json:
        runs.write_json(options.json, result)


if __name__ == "__main__":
    main()
