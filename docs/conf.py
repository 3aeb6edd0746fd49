"""Configuration of the documentation; `make docs` builds it, and needs no network to do so."""

import os
import re
import resource
import sys
import time
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes

STARTED = time.time()
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # _figures.py and _notebooks.py

project = "bures"
author = "The bures developers"
copyright = "2026, The bures developers"
release = installed_version("bures")
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # ships MathJax with the pages; the package's name does have hyphens
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
default_role = "py:obj"  # `bures.ckb` in a docstring is a link
templates_path = ["_templates"]
exclude_patterns = ["_build", "**/GALLERY_HEADER.*"]

html_theme = "furo"
html_title = f"bures {release}"
html_copy_source = False
html_show_search_summary = False  # it would be fetched, which a browser does not do for pages from disk
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the numpydoc sections state the types
autodoc_mock_imports = ["dask", "skada"]  # extras; their integrations are documented all the same
numpydoc_show_class_members = False  # the template in _templates lists them

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",  # every example runs, whatever its name
    "ignore_pattern": r"_common\.py$",  # what the examples share is not a page
    "abort_on_example_error": True,
    "backreferences_dir": None,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}


made: dict[str, list[str]] = {}


def cpu_seconds():
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def build_pages(_app):
    """Draw the pictures and run the notebooks whose source has changed since the last build."""
    import _figures
    import _notebooks

    made["figures"] = _figures.build(HERE / "generated" / "figures")
    made["notebooks"] = _notebooks.build(HERE.parent / "notebooks", HERE / "generated" / "notebooks")


def note_cost(app, error):
    """Write what the build has cost, and what of it was not there from the last one, to build.json."""
    if error is None:
        from bures.files import write_json
        from bures.provenance import hardware, versions

        ran = (path for path in sorted((HERE / "auto_examples").glob("*.py.md5")) if path.stat().st_mtime > STARTED)
        made["examples"] = [path.name.removesuffix(".py.md5") for path in ran]
        cost = {
            "wall_seconds": round(time.time() - STARTED, 1),
            "cpu_seconds": round(cpu_seconds(), 1),
            "load_average": round(os.getloadavg()[1], 1),  # how busy the machine was with all that ran on it
        }
        manifest = {"command": "make docs", "versions": versions(), "hardware": hardware(), "made_anew": made, **cost}
        write_json(Path(app.outdir).parent / "build.json", manifest)


def keep_spreads_whole(_app, document):
    """No line of text or of a narrow cell ends between ± and its number."""
    for text in list(document.findall(nodes.Text)):
        if "±" in text and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(text, nodes.Text(re.sub(r"±\s(?=\d)", "±\u00a0", text)))


def setup(app):
    app.connect("doctree-read", keep_spreads_whole)
    app.connect("builder-inited", build_pages)
    app.connect("build-finished", note_cost)
