"""What is collected: the doctests of what needs an optional library, where this is installed."""

from importlib.util import find_spec

NEEDED = {
    "src/bures/integrations/dask.py": "dask",
    "src/bures/integrations/torchmetrics.py": "torchmetrics",
    "src/bures/estimators/_transport.py": "ot",
    "src/bures/experiments/_tuning.py": "optuna",
}

# skada changes a setting of scikit-learn when it is imported; the tests of its integration run the doctests apart.
APART = ["src/bures/integrations/skada.py"]

collect_ignore = APART + [path for path, library in NEEDED.items() if not find_spec(library)]
