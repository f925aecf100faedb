"""Executes the tutorials and stores them with their output: `make notebooks`.

The names of some, without `.ipynb`, can be given.
"""

import json
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


def execute(path):
    """The notebook as it is after all its cells have run, in an empty folder of its own."""
    notebook = nbformat.read(path, 4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}})
        return client.execute()


def tidy(notebook):
    """Without what changes from run to run and means nothing."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            # Warnings and logs of a run are no part of the page.
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for numbered in (cell, *cell.outputs):
                if "execution_count" in numbered:
                    numbered.execution_count = None
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in TUTORIALS.glob("*.ipynb")):
        path = TUTORIALS / f"{name}.ipynb"
        text = json.dumps(tidy(execute(path)), indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", "utf-8")
