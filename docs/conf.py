"""Configuration of the documentation; `make docs` builds it, and needs no network to do so."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

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


def build_pages(_app):
    """Draw the pictures and run the notebooks whose source has changed since the last build."""
    import _figures
    import _notebooks

    _figures.build(HERE / "generated" / "figures")
    _notebooks.build(HERE.parent / "notebooks", HERE / "generated" / "notebooks")


def setup(app):
    app.connect("builder-inited", build_pages)
