"""Build the wheel and the source archive, and try them as somebody who installs them would.

    python tools/package_check.py          # into an environment that borrows the dependencies of this one: a minute
    python tools/package_check.py --full   # into an empty environment, dependencies and all: several GB

The wheel is built from the source archive, so that this is complete. Both must hold what git tracks and nothing else.
What is installed is then used from another folder: `pip check`, `bures --version`, the import of every module and a
training of two epochs on made-up features.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA_FILES = ("py.typed", "*.yaml", "*.html", "*.j2", "*.css", "*.js")  # what a package of code alone would leave out
MADE_BY_HATCH = {"PKG-INFO", ".gitignore"}  # in the source archive, whatever it is told to include

SMOKE = """
import importlib, pkgutil, sys
import bures

assert bures.__file__.startswith(sys.prefix), f"bures comes from {bures.__file__}"
failed = []
for module in pkgutil.walk_packages(bures.__path__, "bures."):
    if module.name == "bures.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        # Without its optional library a module says how to get it; anything else is a fault.
        if "pip install 'bures[" not in str(error):
            failed.append(f"{module.name}: {error}")
assert not failed, failed
for name in bures.__all__:
    getattr(bures, name)
from bures.training import load_recipe
from bures.experiments import load_grid
load_recipe("digits"), load_grid("digits")

import numpy as np
xs, ys, xt, yt = bures.data.drifting_class(60, drift=1.5, seed=0)
np.savez("source.npz", x=xs, y=ys)
np.savez("target.npz", x=xt, y=yt)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the package, check what is in it and try it.")
    parser.add_argument("--full", action="store_true", help="install the dependencies, too, instead of borrowing them")
    full = parser.parse_args().full
    with tempfile.TemporaryDirectory(prefix="bures-package-") as folder:
        sdist, wheel = build(Path(folder) / "dist")
        problems = [*check_wheel(wheel), *check_sdist(sdist)]
        if problems:
            sys.exit("\n".join(["error: the package does not hold what it should:", *problems]))
        print(f"{wheel.name} and {sdist.name} hold what git tracks, and nothing else")
        try_out(wheel, Path(folder), full=full)
    print("the installed package works")


def build(folder: Path) -> tuple[Path, Path]:
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def tracked(*paths: str) -> set[str]:
    """Files that git tracks or would track, so that a new one counts before it is committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {path for path in listed if (ROOT / path).is_file()}


def check_wheel(wheel: Path) -> list[str]:
    expected = {path.removeprefix("src/") for path in tracked("src/bures")}
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if not name.endswith("/")}
    metadata = {name for name in files if name.partition("/")[0].endswith(".dist-info")}
    problems = differences("wheel", files - metadata, expected)
    if not any(name.endswith("licenses/LICENSE") for name in metadata):
        problems.append("wheel: no licence")
    for pattern in DATA_FILES:
        if not any(Path(name).match(pattern) for name in files):
            problems.append(f"wheel: no file {pattern}")
    return problems


def check_sdist(sdist: Path) -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["sdist"]
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    return differences("sdist", files - MADE_BY_HATCH, tracked(*settings["only-include"]))


def differences(where: str, files: set[str], expected: set[str]) -> list[str]:
    missing = [f"{where}: {name} is missing" for name in sorted(expected - files)]
    return missing + [f"{where}: {name} should not be there" for name in sorted(files - expected)]


def try_out(wheel: Path, folder: Path, *, full: bool) -> None:
    """Install the wheel away from the checkout and use it."""
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    python = str(folder / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input"]
    if full:
        run(*install, str(wheel))
        run(python, "-m", "pip", "check", "--disable-pip-version-check")
    else:
        run(*install, "--no-deps", "--no-index", str(wheel))
        # A path in a .pth file comes after the environment's own packages, and .pth files behind it are not read:
        # neither this checkout nor an editable installation of it can stand in for the wheel.
        own = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True
        )
        Path(own.stdout.decode().strip(), "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        run(sys.executable, "-m", "pip", "check", "--disable-pip-version-check")
    run(python, "-I", "-c", SMOKE, cwd=folder)
    command = str(folder / "venv" / "bin" / "bures")
    run(command, "--version", cwd=folder)
    small = ["--epochs", "2", "--batch-size", "16", "--set", "hidden=8", "--set", "features=4", "--accelerator", "cpu"]
    run(command, "adapt", "--source", "source.npz", "--target", "target.npz", "-o", "out", *small, cwd=folder)
    missing = [name for name in ("manifest.json", "predictions.csv") if not list((folder / "out").rglob(name))]
    if missing:
        sys.exit(f"error: bures adapt left no {' and no '.join(missing)}")


def run(*command: str, cwd: Path = ROOT) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"error: {' '.join(command)[:200]} failed (exit status {done.returncode}):\n{done.stdout[-4000:]}")


if __name__ == "__main__":
    main()
