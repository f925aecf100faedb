"""Executes the tutorials and stores them with their output: `make notebooks`."""

import argparse
import json
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
        client.execute()
    return notebook


def tidy(notebook):
    """Without what changes from run to run and means nothing."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            # Warnings and logs of a run are no part of the page.
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None
    return notebook


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="without .ipynb (default: all)")
    names = parser.parse_args().names or sorted(path.stem for path in TUTORIALS.glob("*.ipynb"))
    for name in names:
        path = TUTORIALS / f"{name}.ipynb"
        notebook = tidy(execute(path))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
