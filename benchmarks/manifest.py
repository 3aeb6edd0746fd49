"""What a benchmark leaves behind: its results, and what one needs to know to repeat them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bures.files import write_json
from bures.provenance import hardware, versions


def write_manifest(
    folder: Path, name: str, command: str, device: str | torch.device, results: list[dict[str, Any]], **more: Any
) -> None:
    """Write the results of one device into a folder, which need not exist yet, and say where they are."""
    manifest = {
        "command": command,
        "versions": versions(),
        "hardware": hardware(device),
        **more,
        "results": results,
    }
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Written: {write_json(folder / f'{name}-{torch.device(device).type}.json', manifest)}")
