"""Whether the runs of a ledger saw the same data: a ledger knows domains by their names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["mixed_data"]


def mixed_data(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Tasks with finished runs whose data were not the same, though recipe and names are.

    Parameters
    ----------
    results : iterable of mapping
        As `bures.experiments.read_results` gives them. Runs are compared by the checksums of their domains, within one
        recipe: how samples are stored may follow from it.

    Examples
    --------
    >>> from bures.experiments._mixed_data import mixed_data
    >>> def run(method, target):
    ...     data = {"source": {"checksum": "1"}, "target": {"checksum": target}}
    ...     return {"task": "here->there", "recipe_name": "digits", "method": method, "data": data}
    >>> mixed_data([run("ckb", "2"), run("ckw", "2")]), mixed_data([run("ckb", "2"), run("ckw", "3")])
    ([], ['here->there'])
    """
    seen: dict[tuple[str, str, str, str], str] = {}
    found: dict[str, None] = {}
    for result in results:
        data = result.get("data")
        for side in ("source", "target"):
            checksum = (data.get(side) or {}).get("checksum") if isinstance(data, Mapping) else None
            if checksum is None or (side == "source" and result.get("method") == "target"):  # which has no source
                continue
            changes = json.dumps(result.get("changes"), sort_keys=True)
            key = str(result["task"]), str(result.get("recipe_name")), changes, side
            if seen.setdefault(key, checksum) != checksum:
                found[str(result["task"])] = None
    return list(found)
