"""The notebooks as pages of the site: run when their source has changed, with text and pictures of their outputs."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

TIMEOUT = 600  # seconds for one cell
KEY = re.compile(r"^<!-- source (\w+) -->\n")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def run(path: Path) -> Any:
    """A notebook with its outputs; an error in a cell ends the build."""
    notebook = nbformat.read(path, as_version=4)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads only get into each other's way
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3").execute()
    return notebook


def build(source: Path, folder: Path) -> list[str]:
    """Write a page for each notebook that has changed since its page was written; return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for path in sorted(source.glob("*.ipynb")):
        key = hashlib.sha256(path.read_bytes() + Path(__file__).read_bytes()).hexdigest()
        page = folder / f"{path.stem}.md"
        known = KEY.match(page.read_text(encoding="utf-8")) if page.is_file() else None
        if known and known[1] == key:
            continue
        text = as_markdown(run(path), path.stem, folder)
        page.write_text(f"<!-- source {key} -->\n\n{text}", encoding="utf-8")
        made.append(path.stem)
    return made


def as_markdown(notebook: Any, name: str, folder: Path) -> str:
    """The cells as Markdown; pictures go into the folder."""
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(fenced("python", cell.source))
            for place, output in enumerate(cell.outputs):
                parts.append(shown(output, f"{name}-{number}-{place}.png", folder))
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(output: Any, picture: str, folder: Path) -> str:
    """One output: a picture, else text; warnings and logs are left out."""
    if output.output_type == "stream":
        return fenced("text", output.text) if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        (folder / picture).write_bytes(base64.b64decode(data["image/png"]))
        return f"![What the cell above draws]({picture})"
    return fenced("text", data["text/plain"]) if "text/plain" in data else ""


def fenced(kind: str, text: str) -> str:
    plain = ESCAPES.sub("", text).strip("\n")  # blanks at the beginning are the head of a table
    return f"```{kind}\n{plain}\n```"
