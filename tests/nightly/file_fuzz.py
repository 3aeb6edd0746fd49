"""Every kind of file that is read, damaged at random: read all the same, or refused by a message that names it."""

from __future__ import annotations

from typing import Any

from tests.fuzz.file_campaign import run_file_campaign

FULL, QUICK = 100_000, 250


def run(quick: bool, seed: int) -> dict[str, Any]:
    """The figures of a campaign over all kinds of files; findings are listed under "failures"."""
    return run_file_campaign(QUICK if quick else FULL, seed)
