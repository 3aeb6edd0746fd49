"""What is collected: the doctests of what needs an optional library, where this is installed."""

from importlib.util import find_spec

NEEDED = {
    "src/bures/integrations/dask.py": "dask",
    "src/bures/estimators/_transport.py": "ot",
    "src/bures/experiments/_tuning.py": "optuna",
}

collect_ignore = [path for path, library in NEEDED.items() if not find_spec(library)]
