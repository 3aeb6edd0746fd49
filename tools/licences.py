"""The licences of everything that an installation of the project brings, from the metadata of what is installed.

    python tools/licences.py           # write docs/licences.md
    python tools/licences.py --check   # only check; exit status 1 on a core dependency that is not permissive

Nothing is fetched. A licence is read from the field License-Expression, from the classifiers, or from a short field
License, in this order. Packages for other systems, or of extras that are not installed, are not seen.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
PROJECT = "bures"
TOOLS = ("dev", "docs")  # not installed with the project: shown, but free to have any licence

PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD",  # of a package that does not say which
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "HPND",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Python-2.0",
    "Unlicense",
    "Zlib",
}

# The words that packages without an SPDX expression use.
SPDX = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache": "Apache-2.0",
    "3-clause bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd license": "BSD",
    "bsd-3-clause license": "BSD-3-Clause",
    "historical permission notice and disclaimer (hpnd)": "HPND",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "mpl-2.0": "MPL-2.0",
    "nvidia proprietary software": "LicenseRef-NVIDIA-Proprietary",
    "other/proprietary license": "LicenseRef-Proprietary",
    "psf": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}

NVIDIA = "comes with the CUDA builds of PyTorch for Linux, under NVIDIA's terms; the CPU builds do without"
MPL = "its terms cover changes to its own files, which are used as they are"
EXCEPTIONS = {
    r"nvidia-.*|cuda-.*": NVIDIA,
    "tqdm": MPL,
    "certifi": MPL,  # of the oldest releases: they bring requests
}


def main() -> None:
    parser = argparse.ArgumentParser(description="List and check the licences of what the project depends on.")
    parser.add_argument("--check", action="store_true", help="check and write nothing")
    only_check = parser.parse_args().check

    groups = dependencies()
    found = {name: licence(distribution(name)) for name in groups}
    bad = [
        f"{name}: {found[name]}"
        for name, where in groups.items()
        if "core" in where and not accepted(name, found[name])
    ]
    if not only_check:
        PAGE.write_text(page(groups, found), encoding="utf-8")
    if bad:
        sys.exit("\n".join(["error: core dependencies whose licence is unknown or not permissive:", *bad]))


def dependencies() -> dict[str, list[str]]:
    """Installed packages that the project needs, directly or not, and for what: "core" or the names of extras."""
    extras = distribution(PROJECT).metadata.get_all("Provides-Extra") or []
    core = closure("")
    groups = {name: ["core"] for name in core}
    for extra in [*(name for name in extras if name not in TOOLS), *TOOLS]:
        for name in closure(extra) - core:
            if extra not in TOOLS or name not in groups:
                groups.setdefault(name, []).append(extra)
    return dict(sorted(groups.items()))


def closure(extra: str) -> set[str]:
    """Names of the installed packages that the project with an extra leads to."""
    waiting, seen = [(PROJECT, extra)], set()
    while waiting:
        name, wanted = waiting.pop()
        try:
            requirements = map(Requirement, distribution(name).requires or [])
        except PackageNotFoundError:  # for another system, or an extra that is not installed
            continue
        seen.add((name, wanted))
        for requirement in requirements:
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                steps = {(canonicalize_name(requirement.name), more) for more in (requirement.extras or {""})}
                waiting += steps - seen
    return {name for name, _ in seen} - {PROJECT}


def licence(package: Distribution) -> str:
    """The licence of a package as an SPDX expression where it can be told, in its own words otherwise."""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    words = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or [] if line.startswith("License ::")]
    words = [word for word in words if word != "OSI Approved"] or [str(told.get("License") or "").strip()]
    names = [SPDX.get(word.lower(), word) for word in words if word and "\n" not in word and len(word) < 60]
    return " AND ".join(sorted(set(names))) or "unknown"


def accepted(name: str, expression: str) -> bool:
    return is_permissive(expression) or reason(name) is not None


def is_permissive(expression: str) -> bool:
    """Whether every part of an expression is permissive; of alternatives, one."""
    if re.search(r"\bOR\b", expression) and not re.search(r"\bAND\b", expression):
        return any(is_permissive(part.strip("() ")) for part in re.split(r"\bOR\b", expression))
    return all(part.strip("() ") in PERMISSIVE for part in re.split(r"\b(?:AND|OR)\b", expression))


def reason(name: str) -> str | None:
    return next((why for pattern, why in EXCEPTIONS.items() if re.fullmatch(pattern, name)), None)


def page(groups: dict[str, list[str]], found: dict[str, str]) -> str:
    direct = {canonicalize_name(Requirement(text).name) for text in distribution(PROJECT).requires or []}
    lines = [
        "# Licences",
        "",
        "What an installation of `bures` brings, and under which licence: the direct dependencies in bold, and what",
        "they lead to. Written by `tools/licences.py` from the metadata of the packages that were installed (Linux,",
        "x86-64, all extras but `timm`). `make package` fails on a core dependency whose licence is neither permissive",
        "nor excepted below.",
        "",
        "| package | licence | needed by |",
        "| --- | --- | --- |",
    ]
    for name, where in groups.items():
        shown = f"**{name}**" if name in direct else name
        lines.append(f"| {shown} | {found[name]} | {', '.join(where)} |")
    lines += ["", "## Exceptions", "", "Core dependencies that are not permissive in every part:", ""]
    excepted: dict[str, list[str]] = {}
    for name, where in groups.items():
        if "core" in where and not is_permissive(found[name]):
            excepted.setdefault(reason(name) or "not accepted", []).append(f"{name} ({found[name]})")
    lines += [f"- {', '.join(names)}: {why}." for why, names in excepted.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
