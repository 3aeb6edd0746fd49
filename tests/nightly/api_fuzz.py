"""Every public name against random input: a finite value with the properties it must have, or a clear error."""

from __future__ import annotations

from typing import Any

from tests.fuzz import targets  # noqa: F401 (the targets are made when they are imported)
from tests.fuzz.campaign import run_campaign

FULL, QUICK = 100_000, 300


def run(quick: bool, seed: int) -> dict[str, Any]:
    """The figures of a campaign over all targets; findings are listed under "failures"."""
    return run_campaign(QUICK if quick else FULL, seed, shrink=not quick)
