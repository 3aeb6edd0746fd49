"""Long campaigns: a section per file, with a function ``run(quick, seed)`` that gives its figures as a dict."""

import sys
from pathlib import Path

# pytest imports these files by their paths; `tests.fuzz` and `tests.nightly` are found from the root.
if (root := str(Path(__file__).parents[2])) not in sys.path:
    sys.path.insert(0, root)
