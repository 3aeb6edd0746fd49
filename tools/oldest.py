"""Make `.venv-oldest`: the oldest releases that pyproject.toml says the project works with.

    python3.11 tools/oldest.py          # make or refresh .venv-oldest, with the oldest supported Python
    python3.11 tools/oldest.py --list   # only say what would be pinned, and which extras are left out
    python3.11 tools/oldest.py --record outputs/oldest.xml   # sum up reports of pytest in results/quality/oldest.json

Each lower bound `name>=1.2` of the dependencies and of the extras becomes the pin `name==1.2`, so that the bounds are
written once, in pyproject.toml. Of the extra `dev` only what runs the tests is pinned: linters check, they do not run.
An extra that needs a newer release of a core dependency than the core does cannot stand beside the oldest core; it is
left out, and the tests of what it brings skip themselves. What the pinned releases themselves ask for is left to pip,
which takes the newest it can: that is what somebody with an old release has, too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-oldest"
STAMP = VENV / "bures-oldest.json"
RESULT = ROOT / "results" / "quality" / "oldest.json"
LOG = VENV / "bures-install.log"
TEST_RUNNERS = {"hypothesis", "pytest", "pytest-xdist"}
TOOLS = {"dev", "docs"}  # extras that are no part of what users run
BOUND = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)>=(?P<version>\d[\w.]*)$")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make .venv-oldest from the lower bounds in pyproject.toml.")
    parser.add_argument("--list", action="store_true", help="print the pins and stop")
    parser.add_argument("--record", nargs="+", metavar="XML", help="sum up reports of pytest and stop")
    options = parser.parse_args()

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins, left_out = oldest(project)
    if options.list:
        print(*pins, sep="\n")
        for extra, reason in left_out.items():
            print(f"# left out: {extra} ({reason})")
        return
    check_python(project["requires-python"])
    if options.record:
        record(options.record, pins)
        return
    stamp = {"python": sys.version, "pins": pins, "checkout": str(ROOT)}
    if read_stamp() == stamp:
        return
    if not same_place(stamp):
        print(f"Setting up {VENV.name} (several GB: a few minutes) ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    install(pins)
    STAMP.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")


def oldest(project: dict) -> tuple[list[str], dict[str, str]]:
    """The pins of a `project` table, and the extras that cannot be pinned beside the core, with the reason."""
    core = bounds(project["dependencies"])
    pins = dict(core)
    left_out = {}
    extras = project.get("optional-dependencies", {})
    for extra, requirements in extras.items():
        if extra in TOOLS:
            continue
        asked = bounds(requirements)
        newer = [f"{name}>={version}" for name, version in asked.items() if core.get(name, version) != version]
        if newer:
            left_out[extra] = f"needs {', '.join(newer)}"
        else:
            pins |= asked
    runners = [requirement for requirement in extras.get("dev", []) if named(requirement) in TEST_RUNNERS]
    pins |= bounds(runners)
    return [f"{name}=={version}" for name, version in sorted(pins.items())], left_out


def bounds(requirements: list[str]) -> dict[str, str]:
    """Lower bounds by name; anything but one lower bound is an error, as it would be left untested."""
    found = {}
    for requirement in requirements:
        match = BOUND.match(requirement)
        if not match:
            sys.exit(
                f"error: pyproject.toml asks for {requirement!r}; a plain lower bound such as numpy>=1.26 is needed"
            )
        found[match["name"]] = match["version"]
    return found


def named(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def check_python(requires: str) -> None:
    wanted = requires.removeprefix(">=")
    given = f"{sys.version_info.major}.{sys.version_info.minor}"
    if given != wanted:
        sys.exit(f"error: the oldest Python is {wanted}, but this is {given}; run: python{wanted} tools/oldest.py")


def read_stamp() -> dict:
    try:
        return json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def same_place(stamp: dict) -> bool:
    """Whether there is an environment of this Python and this checkout, to which changed pins can be added."""
    return all(read_stamp().get(key) == stamp[key] for key in ("python", "checkout"))


def install(pins: list[str]) -> None:
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "off", "-e", str(ROOT), *pins]
    with LOG.open("w", encoding="utf-8") as log:
        code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode
    if code:
        sys.stderr.write("\n".join(LOG.read_text(encoding="utf-8").splitlines()[-25:]) + "\n")
        sys.exit(f"error: pip could not install the oldest releases (exit status {code}); all it said is in {LOG}")


def record(reports: list[str], pins: list[str]) -> None:
    """Count what passed, was skipped and failed in each part of the tests; a later report of a test counts.

    Parts that no report speaks of keep the counts they have, if those are of the same releases.
    """
    fates: dict[tuple[str, str], str] = {}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            place = (case.get("classname") or case.get("name", "")).split(
                "."
            )  # a module skipped as a whole has no class
            inside = place[0] == "tests" and len(place) > 2
            part = "/".join(place[:2]) if inside else {"tests": "tests/*.py", "src": "doctests"}.get(place[0], "other")
            kinds = {child.tag for child in case}
            fate = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            fates[part, f"{case.get('classname')}::{case.get('name')}"] = fate
    parts: dict[str, dict[str, int]] = {}
    for (part, _), fate in sorted(fates.items()):
        counts = parts.setdefault(part, {"passed": 0, "skipped": 0, "failed": 0})
        counts[fate] += 1
    releases = {"python": sys.version.split()[0], "pins": pins}
    known = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {}
    if {key: known.get(key) for key in releases} == releases:
        parts = known["parts"] | parts
    told = releases | {"parts": dict(sorted(parts.items()))}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
