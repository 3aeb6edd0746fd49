"""The documentation is true: its code runs with the output shown, its commands parse, its links lead somewhere."""

import doctest
import importlib
import importlib.util
import json
import re
import shlex
import sys

import doc_pages
import lightning.pytorch  # noqa: F401  its log keeps the stream of its first import, which a runner of commands closes
import pytest
import typer
from doc_pages import DOCS, PAGES, ROOT, TEXTS
from typer.testing import CliRunner

from bures.cli._app import app
from bures.cli._commands import COMMANDS
from bures.methods import _registry

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
ELSEWHERE = {"integrations": "tests/integrations/test_page.py"}  # needs skada, whose import changes scikit-learn
BUILT = "generated/figures/"


def session(body):
    """Commands of a console block with the output shown after each."""
    parts = re.split(r"^\$ (.+)\n", body, flags=re.MULTILINE)
    assert not parts[0].strip(), "a console block begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def run_console(block, page):
    for command, expected in session(block.body):
        program, *words = shlex.split(command)
        assert program == "bures", f"{page}: {command}"
        result = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"}).invoke(app, words, catch_exceptions=False)
        printed = re.sub(r"^\s*$", "", result.output, flags=re.MULTILINE)
        shown = doctest.OutputChecker().check_output(expected, printed, FLAGS)
        assert shown, f"{page}: {command} printed\n{printed}\nand not\n{expected}"


def run_python(block, page, names):
    if ">>> " not in block.body:
        exec(compile("\n" * (block.line - 1) + block.body, page, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.body, names, page, page, block.line - 1)
    test.globs = names  # the parser has made a copy: what a block defines is there in the next
    complaints = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=complaints.append, clear_globs=False)
    assert not complaints, "".join(complaints)


def runnable(path):
    return [block for block in doc_pages.blocks(path.read_text(encoding="utf-8"))
            if block.kind in ("python", "console") and path.stem not in ELSEWHERE]  # fmt: skip


@pytest.mark.parametrize("path", [*filter(runnable, PAGES)], ids=lambda path: path.stem)
def test_code_on_a_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # a page may write a module and import it
    _registry.method_names()  # the library's own are registered once, and not in what is forgotten after the page
    monkeypatch.setattr(_registry, "_FACTORIES", dict(_registry._FACTORIES))  # a page may register a method
    monkeypatch.setattr(_registry, "_INFOS", dict(_registry._INFOS))
    before = set(sys.modules)
    names = {"__name__": path.stem}
    try:
        for block in runnable(path):
            (run_console(block, path.name) if block.kind == "console" else run_python(block, path.name, names))
    finally:
        for name in set(sys.modules) - before:
            if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
                del sys.modules[name]


def test_pages_whose_code_runs_elsewhere_are_tested_there():
    for page, test in ELSEWHERE.items():
        assert f'"{page}.md"' in (ROOT / test).read_text(encoding="utf-8")


def test_code_that_gives_another_output_is_noticed():
    with pytest.raises(AssertionError, match="Expected"):
        run_python(doc_pages.Block("python", ">>> 1 + 1\n3\n", 1), "page.md", {})
    with pytest.raises(AssertionError, match="printed"):
        run_console(doc_pages.Block("console", "$ bures --version\n9.9.9\n", 1), "page.md")


def leaves(command):
    subcommands = getattr(command, "commands", None)
    return [command] if subcommands is None else [leaf for sub in subcommands.values() for leaf in leaves(sub)]


@pytest.fixture(scope="module")
def parse():
    """Parse a command line as `bures` would, and do nothing."""
    command = typer.main.get_command(app)
    for name in COMMANDS:
        command.load(name)
    for leaf in leaves(command):
        leaf.callback = lambda **_: None
    return lambda words: command.main(args=words, prog_name="bures", standalone_mode=False)


def complaint(parse, words, *end):
    """What is wrong with a command line; nothing where it is a whole one, or one whose end is left to the reader."""
    try:
        parse([*(word for word in words if word != "..."), *end])
    except typer.Exit:
        return None
    except Exception as error:  # typer's exceptions have moved between its versions
        if not end and re.search("[Mm]issing|requires an argument", str(error)):
            return complaint(parse, words, "--help") and complaint(parse, words, "value", "--help")
        return str(error)
    return None


def test_every_command_of_the_library_that_is_shown_parses(parse, capsys):
    shown = [command for path in TEXTS for command in doc_pages.commands(path, "bures")]
    assert len(shown) > 60
    complaints = [(command, complaint(parse, shlex.split(command.words, comments=True)[1:])) for command in shown]
    problems = [f"{command.place}: {command.words}: {error}" for command, error in complaints if error]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("line", ["adapt --nope", "test a b --statistic none", "test a b c", "nothing", "features x"])
def test_a_command_with_a_mistake_is_noticed(parse, capsys, line):
    assert complaint(parse, line.split())


def test_targets_of_make_and_scripts_that_are_shown_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    missing = []
    for path in TEXTS:
        for command in doc_pages.commands(path, "make"):
            wanted = [word for word in shlex.split(command.words, comments=True)[1:] if "=" not in word]
            missing += [f"{command.place}: {command.words}" for word in wanted if word not in targets]
        for command in doc_pages.commands(path, "python"):
            words = shlex.split(command.words, comments=True)[1:]
            there = (
                importlib.util.find_spec(words[1]) is not None or (ROOT / words[1].replace(".", "/")).is_dir()
                or (ROOT / (words[1].replace(".", "/") + ".py")).is_file()
                if words[0] == "-m" else (ROOT / words[0]).is_file()
            )  # fmt: skip
            missing += [] if there else [f"{command.place}: {command.words}"]
    assert missing == []


def figures():
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("_figures")
    finally:
        sys.path.remove(str(DOCS))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    built = {f"{name}{suffix}.svg" for name in figures().PICTURES for suffix in ("", "-dark")}
    broken = []
    for target in doc_pages.links(text):
        place, _, anchor = target.partition("#")
        file = path.parent / place if place else path
        if place.startswith(BUILT):
            if place.removeprefix(BUILT) not in built:
                broken.append(target)
        elif not file.exists() or (anchor and anchor not in doc_pages.anchors(file.read_text(encoding="utf-8"))):
            broken.append(target)
    for target in doc_pages.roles(text, "doc"):
        gallery = re.fullmatch(r"auto_examples/(\w+)", target)
        file = ROOT / "examples" / f"{gallery[1]}.py" if gallery and gallery[1] != "index" else DOCS / f"{target}.md"
        if not (file.is_file() or target == "auto_examples/index"):
            broken.append(target)
    assert broken == []


def test_what_a_page_includes_of_another_is_there():
    found = 0
    for path in PAGES:
        for block in doc_pages.blocks(path.read_text(encoding="utf-8")):
            if block.kind.startswith("{include}"):
                text = (DOCS / block.kind.split()[1]).read_text(encoding="utf-8")
                marks = dict(re.findall(r"^:([\w-]+): (.+)$", block.body, flags=re.MULTILINE))
                assert marks.get("start-after", "") in text, f"{path.name}: {marks}"
                assert marks.get("end-before", "") in text.partition(marks.get("start-after", "\n"))[2], (
                    f"{path.name}: {marks}"
                )
                found += 1
    assert found >= 3


def test_every_object_that_a_page_names_is_in_the_reference():
    known = doc_pages.documented_names()
    assert {"bures.ckb", "bures.data.optdigits", "bures.methods.ckb.ckb_mmd"} <= known
    missing = [
        f"{path.name}: {name}"
        for path in PAGES
        for name in doc_pages.roles(path.read_text(encoding="utf-8"), "py:obj")
        if not any(name == entry or name.startswith(f"{entry}.") for entry in known)
    ]
    assert missing == []


MODULES = ("experiments", "feature_maps", "figures", "losses", "metrics", "moments", "report", "running_losses",
           "selection", "shift", "testing", "training")  # fmt: skip


@pytest.mark.parametrize("module", ["bures", *(f"bures.{name}" for name in MODULES)])
def test_every_public_class_and_function_is_in_the_reference(module):
    known = doc_pages.documented_names()
    loaded = importlib.import_module(module)
    public = [name for name in loaded.__all__ if callable(getattr(loaded, name))]
    assert public
    assert [name for name in public if not {f"{module}.{name}", f"bures.{name}"} & known] == []


def test_every_page_has_its_place_in_the_site():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    entries = [line for block in doc_pages.blocks(index) if block.kind == "{toctree}"
               for line in block.body.splitlines() if line and not line.startswith(":")]  # fmt: skip
    assert sorted(entries) == sorted([*(path.stem for path in PAGES if path.stem != "index"), "auto_examples/index"])
    assert all(":caption:" in block.body for block in doc_pages.blocks(index) if block.kind == "{toctree}")


def test_every_picture_in_the_folder_is_on_a_page():
    shown = "".join(path.read_text(encoding="utf-8") for path in TEXTS)
    assert [path.name for path in sorted((DOCS / "images").iterdir()) if f"images/{path.name}" not in shown] == []


def test_pictures_are_drawn_when_something_they_are_made_from_has_changed(tmp_path, monkeypatch):
    module = figures()
    few = {name: module.PICTURES[name] for name in ("kinds", "network")}
    monkeypatch.setattr(module, "PICTURES", few)
    assert module.build(tmp_path) == ["kinds", "network"]
    assert {path.name for path in tmp_path.glob("*.svg")} == {
        "kinds.svg", "kinds-dark.svg", "network.svg", "network-dark.svg",
    }  # fmt: skip
    assert module.build(tmp_path) == []
    (tmp_path / "kinds-dark.svg").unlink()
    assert module.build(tmp_path) == ["kinds"]
    monkeypatch.setattr(module, "stamp", lambda _: "other")
    assert module.build(tmp_path) == ["kinds", "network"]


def test_the_cost_of_a_build_that_is_stated_was_measured():
    cost = json.loads((ROOT / "results/docs/build.json").read_text(encoding="utf-8"))
    assert cost["made_anew"] == {"examples": [], "figures": [], "notebooks": []}
    stated = " ".join((DOCS / "contributing.md").read_text(encoding="utf-8").split())
    wall, cpu = cost["wall_seconds"], cost["cpu_seconds"]
    assert f"a build took {wall:.0f} s, of which the processor worked {cpu:.0f} s" in stated
