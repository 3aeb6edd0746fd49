"""How runs were made: commands, data, machines, versions and recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bures.report import _words as words
from bures.report._shown import Shown

__all__ = ["environments"]


def environments(shown: Sequence[Shown]) -> list[dict[str, Any]]:
    """How each run was made; runs that differ in their recipes alone share a description."""
    found: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for run in shown:
        manifest = run.record.manifest
        recipe = [(name, _recipe_value(value)) for name, value in manifest["recipe"].items()]
        own = {"label": run.label, "style": run.style, "folder": str(run.record.path)}
        own |= {"seed": manifest.get("seed"), "recipe": recipe}
        common = _environment(manifest)
        for other, runs in found:
            if other == common:
                runs.append(own)
                break
        else:
            found.append((common, [own]))
    return [common | {"runs": runs} for common, runs in found]


def _environment(manifest: dict[str, Any]) -> dict[str, Any]:
    data = []
    for side in ("source", "target", "evaluation"):
        part = manifest["data"][side]
        data.append(
            (side, str(part.get("name")), words.count(int(part.get("samples") or 0)), str(part.get("checksum")))
        )
    return {
        "command": manifest.get("command"),
        "from_command_line": bool(manifest["data"].get("origin")),
        "network": [(name, value) for name, value in (manifest.get("network") or {}).items() if value is not None],
        "data": data,
        "hardware": [(name, value) for name, value in (manifest.get("hardware") or {}).items() if value is not None],
        "versions": list((manifest.get("versions") or {}).items()),
    }


def _recipe_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items()) or "–"
    return "–" if value is None else str(value)
