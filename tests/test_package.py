"""The package as a whole: quick to import, every public name documented, typed, versioned and citable."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
import yaml

import bures

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"lightning", "pytorch_lightning", "matplotlib"}


def python(code: str, *options: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def after(code: str) -> tuple[set[str], set[str]]:
    """Top-level packages in `sys.modules`, and the global names, of a fresh interpreter after some code."""
    report = "import json, sys; print(json.dumps([sorted(sys.modules), sorted(globals())]))"
    modules, names = json.loads(python(f"{code}\n{report}"))
    return {name.partition(".")[0] for name in modules}, set(names)


def test_import_loads_neither_torch_nor_lightning_nor_matplotlib():
    loaded, _ = after("import bures")
    assert "bures" in loaded
    assert not loaded & {*HEAVY, "torch", "torchvision", "scipy", "sklearn", "pandas"}


def test_all_public_names_load_torch_but_neither_lightning_nor_matplotlib():
    loaded, names = after("from bures import *")
    assert set(bures.__all__) <= names
    assert "torch" in loaded
    assert not loaded & {*HEAVY, "sklearn", "torchvision"}


@pytest.mark.parametrize("word", ["--help", "--version", "adpt"])
def test_what_the_command_line_says_of_itself_needs_no_torch(word):
    code = f"""
import contextlib, io, sys
from bures.cli import main
sys.argv[1:] = ["{word}"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""
    assert not after(code)[0] & {*HEAVY, "torch"}


def test_methods_and_networks_load_torchvision_for_its_models_alone():
    loaded, _ = after("from bures.networks import backbone; import bures.methods; backbone('lenet')")
    assert "torch" in loaded
    assert not loaded & {*HEAVY, "torchvision"}


def test_the_command_line_loads_neither_lightning_nor_matplotlib_before_it_needs_them():
    loaded, _ = after("import bures.cli, bures.training; bures.training.load_recipe('digits')")
    assert not loaded & HEAVY


def test_import_and_first_use_raise_no_warning():
    python("import bures; bures.ckb; bures.CKBLoss(); bures.data.drifting_class(6)", "-W", "error")


def test_every_public_name_resolves_and_is_listed_once():
    assert len(set(bures.__all__)) == len(bures.__all__)
    for name in bures.__all__:
        assert getattr(bures, name) is not None
        assert name in dir(bures)


MODULES = re.findall(r"^\.\. (?:automodule|currentmodule):: bures\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.M)


@pytest.mark.parametrize("name", [*MODULES, "losses", "metrics", "moments", "feature_maps", "running_losses", "shift"])
def test_documented_modules_need_no_import_of_their_own(name):
    assert python(f"import bures; print(bures.{name}.__name__)").strip() == f"bures.{name}"
    assert name in dir(bures)


def test_what_a_module_gives_to_others_is_in_its_list_of_names():
    trees = {}
    for file in (ROOT / "src/bures").rglob("*.py"):
        parts = file.relative_to(ROOT / "src").with_suffix("").parts
        trees[".".join(part for part in parts if part != "__init__")] = ast.parse(file.read_text(encoding="utf-8"))
    lists = {}
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and "__all__" in map(ast.unparse, node.targets) and name != "bures":
                lists[name] = ast.unparse(node.value)
    taken = {
        (node.module, item.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in lists
        for item in node.names
    }
    assert len(taken) > 500
    unlisted = [f"{module}.{name}" for module, name in taken if f"{module}.{name}" not in trees
                and lists[module].startswith("[") and repr(name) not in lists[module]]  # fmt: skip
    assert unlisted == []


def test_every_public_name_is_known_to_type_checkers():
    source = inspect.getsource(bures)
    block = source[source.index("if TYPE_CHECKING") : source.index("__all__")]
    for name in [*bures.__all__, *MODULES]:
        assert re.search(rf"\b{name}\b", block), name


def public_objects() -> dict[str, object]:
    objects = {name: getattr(bures, name) for name in bures.__all__ if not inspect.ismodule(getattr(bures, name))}
    objects |= {f"data.{name}": getattr(bures.data, name) for name in bures.data.__all__}
    return objects


@pytest.mark.parametrize("name", public_objects())
def test_every_public_object_has_a_docstring_with_a_doctest(name):
    documented = public_objects()[name]
    text = inspect.getdoc(documented) or ""
    summary = text.split("\n", 1)[0]
    assert summary.endswith("."), "the first line is one sentence"
    examples = re.search(r"^Examples\n-{8}\n(.*?)(?:^\S.*\n-{3,}|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    assert examples, "no section Examples"
    assert ">>> " in examples[1]
    # What is called with arguments describes them.
    if inspect.isfunction(documented):
        assert re.search(r"^Parameters\n-{10}$", text, flags=re.MULTILINE)
        assert re.search(r"^Returns\n-{7}$", text, flags=re.MULTILINE)
        described = text[text.index("Parameters\n") : text.index("Returns\n")]
        for parameter in inspect.signature(documented).parameters:
            assert re.search(rf"\b{parameter}\b", described), f"{parameter} is not described"


@pytest.mark.parametrize("name", [name for name in bures.__all__ if inspect.ismodule(getattr(bures, name))])
def test_every_public_module_has_a_docstring_and_public_names(name):
    module = getattr(bures, name)
    assert (module.__doc__ or "").strip().endswith(".")
    assert module.__all__


@pytest.mark.parametrize("name", public_objects())
def test_public_objects_say_where_they_live(name):
    documented = public_objects()[name]
    assert documented.__module__.startswith("bures.")
    assert documented.__name__ == name.rpartition(".")[2]


def test_dir_lists_the_public_names_before_they_are_loaded():
    listed = json.loads(python("import json, bures; print(json.dumps(dir(bures)))"))
    assert set(bures.__all__) <= set(listed)
    assert listed == sorted(listed)
    assert "__version__" in listed


def test_an_unknown_attribute_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="module 'bures' has no attribute 'wasserstein'"):
        _ = bures.wasserstein
    assert not hasattr(bures, "ckq")


def test_the_package_is_marked_as_typed():
    assert resources.files("bures").joinpath("py.typed").is_file()


def test_version_is_a_string_that_starts_with_a_number():
    assert re.match(r"\d", bures.__version__)


@pytest.fixture
def citation():
    path = ROOT / "CITATION.cff"
    if not path.is_file():
        pytest.skip("not a source tree")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_citation_names_the_paper_and_its_pages(citation):
    paper = citation["preferred-citation"]
    assert paper["title"] == "Conditional Bures Metric for Domain Adaptation"
    assert [author["family-names"] for author in paper["authors"]] == ["Luo", "Ren"]
    assert (paper["year"], paper["start"], paper["end"]) == (2021, 13989, 13998)


def test_citation_and_docstring_agree_on_the_pages(citation):
    paper = citation["preferred-citation"]
    assert f"pp. {paper['start']}-{paper['end']}" in bures.ckb.__doc__


def test_citation_states_the_version_of_the_project(citation):
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == bures.__version__
    assert citation["license"] == project["license"]


def tool(name):
    """A module of tools/, which is no package."""
    path = ROOT / "tools" / f"{name}.py"
    if not path.is_file():
        pytest.skip("not a source tree")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_of_the_imports_is_that_of_the_code():
    pytest.importorskip("grimp")
    import_map = tool("import_map")
    layers, imports = import_map.layers(), import_map.imports()
    assert import_map.draw(layers, imports) == import_map.DRAWING.read_text(encoding="utf-8")
    for above, belows in imports.items():
        for below in belows & set(layers):
            assert above not in layers or layers.index(above) < layers.index(below)


def test_a_drawing_leaves_out_what_a_longer_way_says():
    pytest.importorskip("grimp")
    reduced = tool("import_map").reduced({"a": {"b", "c", "d"}, "b": {"c"}, "c": set()})
    assert reduced == [("a", "b"), ("a", "d"), ("b", "c")]


def test_the_tables_of_the_page_on_quality_are_those_of_the_results():
    page = tool("quality_page")
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text


def test_the_oldest_releases_are_the_lower_bounds():
    project = {
        "dependencies": ["numpy>=1.26", "torch>=2.4"],
        "optional-dependencies": {
            "ot": ["pot>=0.9.4"],
            "onnx": ["onnx>=1.16", "torch>=2.6"],
            "dev": ["pytest>=8.2", "ruff>=0.11"],
        },
    }
    pins, left_out = tool("oldest").oldest(project)
    assert pins == ["numpy==1.26", "pot==0.9.4", "pytest==8.2", "torch==2.4"]
    assert left_out == {"onnx": "needs torch>=2.6"}
    with pytest.raises(SystemExit, match=r"numpy>1\.26,<3"):
        tool("oldest").bounds(["numpy>1.26,<3"])


@pytest.mark.parametrize(
    ("expression", "permissive"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND (MIT AND Zlib)", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("LGPL-3.0-or-later", False),
        ("unknown", False),
    ],
)
def test_a_licence_is_permissive_if_all_that_must_be_kept_is(expression, permissive):
    assert tool("licences").is_permissive(expression) is permissive


def test_every_core_dependency_has_a_permissive_licence_or_a_reason():
    licences = tool("licences")
    for name, groups in licences.dependencies().items():
        licence = licences.licence(licences.distribution(name))
        assert "core" not in groups or licences.accepted(name, licence), f"{name}: {licence}"


def test_git_holds_text_and_pictures_alone():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert [p.name for p in paths if p.is_file() and p.suffix != ".png" and b"\0" in p.read_bytes()] == []
