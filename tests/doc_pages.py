"""What the tests read from Markdown pages: fenced blocks, commands, links, anchors and roles."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]

FENCE = re.compile(r"^(?P<marks>`{3,})(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=marks)[ ]*$", flags=re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: what its first line says it is, its text, and the line of the page on which that begins."""

    kind: str
    body: str
    line: int


class Command(NamedTuple):
    """A command line and where it stands."""

    words: str
    place: str


def blocks(text):
    """The fenced blocks of a page, in order."""
    return [
        Block(match["kind"].strip(), match["body"], text.count("\n", 0, match.start("body")) + 1)
        for match in FENCE.finditer(text)
    ]


def prose(text):
    """A page without its fenced blocks; lines keep their numbers."""
    return FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


def commands(path, program):
    """Command lines of a program on a page, in shell blocks and in code within the text."""
    text = path.read_text(encoding="utf-8")
    found = []
    for block in blocks(text):
        if block.kind in ("", "bash", "console", "sh"):
            joined = block.body.replace("\\\n", "  ")
            found += [(line.removeprefix("$ "), block.line) for line in joined.splitlines()]
    for match in re.finditer(r"`([^`]+)`", prose(text)):
        found.append((" ".join(match[1].split()), text.count("\n", 0, match.start()) + 1))
    beginning = re.compile(rf"(?:\$\(BIN\)/|\.venv/bin/)?{re.escape(program)} ")
    return [Command(line, f"{path.name}, near line {number}") for line, number in found if beginning.match(line)]


def links(text):
    """Targets of links and images on a page that lead to files or anchors of the project."""
    pattern = r"\]\(<?([^)\s>]+)>?\)|^:?\[[^\]]+\]:[ ]+(\S+)"
    targets = ["".join(groups) for groups in re.findall(pattern, prose(text), flags=re.MULTILINE)]
    targets += [
        block.kind.split("}", 1)[1].strip() for block in blocks(text) if block.kind.startswith(("{image}", "{figure}"))
    ]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(text):
    """Anchors of a page: its headings, as MyST names them, and its explicit targets."""
    found = set(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))
    for heading in re.findall(r"^#{1,3} (.+)$", prose(text), flags=re.MULTILINE):
        plain = re.sub(r"[`*$]|\{[\w:]+\}", "", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


def roles(text, name):
    """Targets of the roles of a name, such as ``{doc}`concept```, with a title or without."""
    found = re.findall(rf"\{{{re.escape(name)}\}}`([^`]+)`", prose(text))
    return [re.sub(r"^.*<(.+)>$", r"\1", target).lstrip("~!") for target in found]


def documented_names():
    """Names that the reference has an entry for."""
    names = set()
    for path in (DOCS / "api.md", DOCS / "methods.md"):
        module = ""
        for block in blocks(path.read_text(encoding="utf-8")):
            listed = False
            for line in block.body.splitlines():
                if match := re.match(r"\.\. (currentmodule|auto\w+):: ?(\S*)", line):
                    listed = match[1] == "autosummary"
                    if match[1] == "currentmodule":
                        module = match[2]
                    elif match[1] == "automodule":
                        names |= members(match[2])
                    elif not listed:
                        names.add(match[2])
                elif listed and re.fullmatch(r"   [\w.]+", line):
                    names.add(f"{module}.{line.strip()}")
    return names


def members(module):
    """The public names of a module."""
    loaded = __import__(module, fromlist=["__all__"])
    return {f"{module}.{name}" for name in loaded.__all__} | {module}
