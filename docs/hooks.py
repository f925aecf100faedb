"""What the site has beyond the pages of `docs/`: called by MkDocs, see `mkdocs.yml`.

Pages that lie elsewhere in the repository, such as the README, are pages of the site too. Links are
written so that they work where the file lies, on GitHub; here they are turned into links of the
site. A link to any other file of the repository takes a copy of that file along.

Notebooks become pages with their stored output. `<!-- help: COMMAND -->` becomes what the command
says of itself, `<!-- fields: CLASS -->` a table of a dataclass's fields.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import posixpath
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Where pages lie in the repository that are not in `docs/`, and where they are on the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "benchmarks/README.md": "results/benchmarks.md",
    "experiments/frontier/README.md": "results/frontier.md",
    "experiments/paper/README.md": "results/paper.md",
    "docs/tutorials/how-little.ipynb": "tutorials/how-little.md",
    "docs/tutorials/two-lines.ipynb": "tutorials/two-lines.md",
    "examples/flower-pytorch/README.md": "examples/pytorch.md",
    "examples/flower-sklearn/README.md": "examples/sklearn.md",
    "examples/flower-transformer/README.md": "examples/transformer.md",
}
COPIES = "files"  # the folder of the site for other files that pages link to
_FENCE = re.compile(r"^(```|~~~)[^\n]*\n.*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<to>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie elsewhere, and the files that pages link to."""
    for place, page in PAGES.items():
        text = (ROOT / place).read_text("utf-8")
        if place.endswith(".ipynb"):
            text, pictures = notebook(text, Path(place).stem)
            for name, content in pictures.items():
                uri = posixpath.join(posixpath.dirname(page), name)
                files.append(File.generated(config, uri, content=content))
        files.append(File.generated(config, page, content=text))
    for page in list(files.documentation_pages()):
        for to in linked(page.content_string, place_of(page.src_uri)):
            path = ROOT / to
            if (
                site_of(to).startswith(COPIES)
                and path.is_file()
                and not files.get_file_from_path(site_of(to))
            ):
                files.append(File.generated(config, site_of(to), content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links, help texts and tables of fields as the site has them."""
    place = place_of(page.file.src_uri)
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]

    def link(match: re.Match[str]) -> str:
        if is_elsewhere(match["to"]):
            return match[0]
        to = resolved(match["to"], place)
        if (ROOT / to).is_dir():
            to += "/README.md"
            if to not in PAGES:  # a folder that has no page
                return match["text"]
        new = posixpath.relpath(site_of(to), posixpath.dirname(page.file.src_uri) or ".")
        return f"[{match['text']}]({new}{match['anchor'] or ''})"

    pieces, end = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_LINK.sub(link, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    text = "".join([*pieces, _LINK.sub(link, markdown[end:])])
    text = re.sub(r"<!-- help: ?(.*?) ?-->", lambda m: help_of(m[1].split()), text)
    return re.sub(r"<!-- fields: (\w+) -->", lambda m: fields_of(m[1]), text)


def place_of(page: str) -> str:
    """Where a page of the site lies in the repository."""
    return {page: place for place, page in PAGES.items()}.get(page, f"docs/{page}")


def site_of(place: str) -> str:
    """Where a file of the repository is on the site."""
    if place in PAGES:
        return PAGES[place]
    return place.removeprefix("docs/") if place.startswith("docs/") else f"{COPIES}/{place}"


def is_elsewhere(link: str) -> bool:
    return re.match(r"[a-z]+:|/", link) is not None


def resolved(link: str, place: str) -> str:
    """The file of the repository that a link on a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))


def linked(markdown: str, place: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    for match in _LINK.finditer(_FENCE.sub("", markdown)):
        if not is_elsewhere(match["to"]):
            yield resolved(match["to"], place)


def notebook(text: str, name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures."""
    pieces: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            pieces.append(source)
            continue
        pieces.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                pieces.append(f"![What the cell above draws]({picture})")
                continue
            said = "".join(output.get("text", data.get("text/plain", "")))
            if said.strip():
                pieces.append(f"```text\n{said.rstrip()}\n```")
    return "\n\n".join(pieces) + "\n", pictures


def help_of(command: list[str]) -> str:
    """What a command says of itself, as a block without frames."""
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    said = subprocess.run(
        [sys.executable, "-m", "taciturn", *command, "--help-all"], text=True, check=True,
        capture_output=True, env=environment,
    ).stdout  # fmt: skip
    lines: list[str] = []
    for line in said.strip().splitlines():
        if line.startswith("╭"):
            lines += ["", line.strip("╭─╮ ") + ":"]
        elif not line.startswith("╰"):
            inner = line.strip("│") if line.startswith("│") else textwrap.fill(line, 78)
            lines.append(inner.rstrip())
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    return f"```text\n{text}\n```"


def fields_of(name: str) -> str:
    """The fields of `Settings`, or those that `Plan` has beside them, as a table."""
    import docstring_parser

    from taciturn import settings

    kind: Any = getattr(settings, name)
    helps = {
        one.arg_name: " ".join((one.description or "").split())
        for one in docstring_parser.parse_from_object(kind).params
    }
    rows = ["| name | type | default | |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        if field.name in kind.__annotations__:
            usual = "" if field.default is None else f"`{field.default!r}`"
            of = str(field.type).replace("|", "or").replace(" or None", "")
            rows.append(f"| `{field.name}` | {of} | {usual} | {helps[field.name]} |")
    return "\n".join(rows)
