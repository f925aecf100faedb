"""Pages: links lead somewhere, and what a reader would type is run or says why it is not.

A block of commands or Python in the README, *Start* or *Guides* is run, as it stands but with fewer
rounds, unless `<!-- not run: REASON -->` is above it. Blocks of a page share a folder and, where
they are Python, their names. The federation of `flower.md` is run by `tests/flower`.
"""

import ast
import csv
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import taciturn
from taciturn import cli
from taciturn.core.policy import parse

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *DOCS.glob("tutorials/*.ipynb"),
     *ROOT.glob("experiments/*/README.md"), *ROOT.glob("examples/*/README.md"),
     ROOT / "benchmarks" / "README.md"]
)  # fmt: skip
READ_ALONG = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]  # of which design has no commands
# What compiles many programs runs at night.
NIGHTLY = ("data.md", "runs.md", "README.md")
LINK = re.compile(r"\[[^\[\]]*\]\(([^)\s]+)\)")
WHY = r"(?:<!-- not run: (?P<why>[^\n]+) -->\n)?"
FENCE = re.compile(rf"{WHY}^```(?P<kind>bash|python)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    why: str | None  # it is not run
    kind: str
    text: str


def text_of(page):
    text = page.read_text("utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def prose(page):
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S)


def blocks(page):
    return [Block(*found.groups()) for found in FENCE.finditer(text_of(page))]


def anchors(page):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), to
        if anchor and to.suffix in (".md", ".ipynb"):
            assert anchor in anchors(to), f"{to.name}#{anchor}"


def test_pages_are_short():
    """What a person has to read, tables too; the reference is for looking things up."""
    pages = [page for page in PAGES if page.suffix == ".md" and "reference" not in page.parts]
    assert sum(len(page.read_bytes()) for page in pages) <= 110_000
    assert len((ROOT / "README.md").read_bytes()) <= 6_000
    assert len((DOCS / "performance.md").read_bytes()) <= 12_000


@pytest.mark.parametrize("page", READ_ALONG, ids=lambda path: path.name)
def test_what_a_reader_would_type_is_understood(page):
    """All of it, also what is not run: options have these names, policies can be read."""
    for block in blocks(page):
        if block.kind == "python":
            ast.parse(block.text)
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            first, *words = shlex.split(line, comments=True) or [""]
            if first == "taciturn":
                read = vars(cli.read(words))
                texts = [read.get(name) or "full" for name in ("policy", "arms", "policies")]
                for policy in ";".join(texts).split(";"):
                    parse(policy.strip())


def test_policies_that_the_guide_names_exist():
    guide = (DOCS / "policies.md").read_text("utf-8")
    named = re.findall(r"`((?:budget|full)[^` ]*)`", guide)
    assert len(named) > 10
    for policy in named:
        if "AMOUNT" not in policy:
            parse(policy)


def test_the_columns_of_metrics_are_described(tmp_path):
    taciturn.simulate("synthetic", "full", plain=True, rounds=1, cohort=2, folder=tmp_path)
    with open(tmp_path / "metrics.csv", newline="") as file:
        columns = next(csv.reader(file))
    page = (DOCS / "reference" / "files.md").read_text("utf-8")
    table = page.partition("## metrics.csv")[2].partition("## config.toml")[0]
    assert not [name for name in columns if f"`{name}`" not in table]


DRIVER = """
import subprocess, sys
names = {"__name__": "__main__"}
for kind, text in BLOCKS:
    if kind == "python":
        exec(compile(text, "page", "exec"), names)
    else:
        subprocess.run(["bash", "-euc", text], check=True)
"""


def shorter(block):
    """The same with fewer rounds."""
    if block.kind == "python":
        return re.sub(r"\brounds=\d+", "rounds=3", block.text)
    text = re.sub(r" --rounds \d+| --seeds \d+", "", block.text)
    begun = r"^(taciturn (?:run|compare|frontier)\b)(?! list)"
    text = re.sub(begun, r"\1 --seeds 2 --rounds 3", text, flags=re.M)
    return re.sub(r"^taciturn\b", f"{sys.executable} -m taciturn", text, flags=re.M)


def environment():
    found = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "src")}
    found.pop("TACITURN_DATA", None)
    return found


def runnable():
    pages = [page for page in READ_ALONG if page.name not in ("flower.md", "machines.md")]
    return [
        pytest.param(page, id=page.name,
                     marks=pytest.mark.nightly if page.name in NIGHTLY else pytest.mark.slow)
        for page in pages if any(block.why is None for block in blocks(page))
    ]  # fmt: skip


@pytest.mark.parametrize("page", runnable())
def test_what_a_reader_would_type_runs(page, tmp_path):
    run = [(block.kind, shorter(block)) for block in blocks(page) if block.why is None]
    done = subprocess.run(
        [sys.executable, "-c", f"BLOCKS = {run!r}\n{DRIVER}"], cwd=tmp_path, text=True,
        env=environment(), capture_output=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_the_script_for_many_machines_runs_in_two_processes(tmp_path):
    [script] = [block.text for block in blocks(DOCS / "machines.md") if block.kind == "python"]
    (tmp_path / "experiment.py").write_text(script)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [
        subprocess.Popen([sys.executable, "experiment.py", address, str(i), "2"], cwd=tmp_path,
                         env=environment(), text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
        for i in (0, 1)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], said
    assert re.search(r"full \d+\.\d+\nbudget \d+\.\d+\n", said[0])
    assert "budget" not in said[1]


@pytest.mark.nightly
@pytest.mark.parametrize("path", sorted(DOCS.glob("tutorials/*.ipynb")), ids=lambda path: path.stem)
def test_a_tutorial_runs_from_top_to_bottom(path):
    pytest.importorskip("nbclient", reason="the tutorials need the extra `docs`")
    from notebooks import execute

    execute(path)


@pytest.mark.parametrize("path", sorted(DOCS.glob("tutorials/*.ipynb")), ids=lambda path: path.stem)
def test_a_tutorial_is_stored_with_its_output(path):
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1
    assert not [output for output in outputs if output["output_type"] == "error"]
