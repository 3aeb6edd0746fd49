"""Make `.venv` and install the project into it, only when something has changed.

    python tools/venv.py                     # the `dev` extra
    python tools/venv.py --extras dev,docs   # more extras

`.venv/bures-stamp.json` records what the last complete installation was made from: the dependency and script tables of
`pyproject.toml`, the Python version, the place of the checkout and the extras. While it agrees with the
present state there is nothing to do. It is removed before an installation starts and written after it ends,
so that an interrupted one is finished by the next call. Changed dependencies are installed over the old ones;
another Python or another place makes `.venv` anew.

Standard library only. It must parse on any Python 3.6+, to be able to say that the interpreter is too old.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "bures-stamp.json")
LOG = os.path.join(VENV, "bures-install.log")
SHOWN_DOWNLOAD_MB = 20  # smaller downloads pass unmentioned
TAIL = 25  # lines of pip's output shown when it fails


def main():
    parser = argparse.ArgumentParser(description="Make .venv and install the project into it when needed.")
    parser.add_argument("--extras", default="dev", help="extras of pyproject.toml, by commas (default: dev)")
    wanted = {name.strip() for name in parser.parse_args().extras.split(",") if name.strip()}

    if sys.version_info < OLDEST:
        found = f"{sys.executable} is {dotted(sys.version_info[:3])}"
        remedy = "name a newer one, for example: make test PYTHON=python3.12"
        fail(f"bures needs Python {dotted(OLDEST)} or newer, but {found}; {remedy}")
    project, build_system = read_pyproject()
    defined = set(project.get("optional-dependencies", {}))
    if wanted - defined:
        fail(f"--extras names {listed(wanted - defined)}; pyproject.toml defines {listed(defined)}")

    stamp = read_stamp()
    runs = interpreter_runs()
    have = set(stamp.get("extras", ()))
    if runs and wanted <= have and stamp == make_stamp(project, build_system, have):
        return

    # Extras that were asked for earlier stay, so that `make docs` and `make test` do not undo each other.
    extras = wanted | (have & defined)
    new_stamp = make_stamp(project, build_system, extras)
    if stamp:
        os.remove(STAMP)
    if needs_new_venv(runs, stamp, new_stamp):
        say("Setting up .venv (the first time this downloads PyTorch, several GB: a few minutes) ...")
        create_venv()
    else:
        say("Bringing .venv up to date ...")
    install(extras)
    write_stamp(new_stamp)
    say("The environment in .venv is ready.")


def read_pyproject():
    """Return the tables `project` and `build-system` of pyproject.toml."""
    import tomllib  # here, because an older Python must get as far as the message about its version

    path = os.path.join(ROOT, "pyproject.toml")
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        fail(f"cannot read {path}: {error}")
    return tables.get("project", {}), tables.get("build-system", {})


def make_stamp(project, build_system, extras):
    dependencies = {
        "requires-python": project.get("requires-python"),
        "dependencies": project.get("dependencies"),
        "optional-dependencies": project.get("optional-dependencies"),
        "scripts": project.get("scripts"),
        "build-system": build_system,
    }
    digest = hashlib.sha256(json.dumps(dependencies, sort_keys=True).encode()).hexdigest()
    return {
        "python": sys.implementation.cache_tag,
        "checkout": ROOT,
        "extras": sorted(extras),
        "dependencies": digest,
    }


def read_stamp():
    """Return the stamp of the last complete installation, or an empty one."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(stamp):
    partial = STAMP + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=2)
    os.replace(partial, STAMP)


def interpreter_runs(*arguments):
    """Tell whether `.venv/bin/python` starts, with `arguments` or doing nothing."""
    command = [VENV_PYTHON, *(arguments or ("-I", "-S", "-c", "pass"))]
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def needs_new_venv(runs, stamp, new_stamp):
    """Tell whether `.venv` must be made anew, rather than have packages added."""
    if not runs or not interpreter_runs("-m", "pip", "--version"):
        return True
    if stamp:
        return any(stamp.get(key) != new_stamp[key] for key in ("python", "checkout"))
    # No stamp: an interrupted installation, to be finished if it is of this Python and in this place.
    facts = "import sys; print(sys.implementation.cache_tag); print(sys.prefix)"
    answer = subprocess.run([VENV_PYTHON, "-I", "-c", facts], stdout=subprocess.PIPE, text=True)
    tag, prefix = answer.stdout.splitlines()
    return tag != new_stamp["python"] or os.path.realpath(prefix) != os.path.realpath(VENV) or scripts_moved()


def scripts_moved():
    """Tell whether the scripts of `.venv` name an interpreter elsewhere, as after moving the checkout."""
    try:
        with open(os.path.join(VENV, "bin", "pip"), encoding="utf-8", errors="replace") as file:
            return VENV + os.sep not in file.read(4096)
    except OSError:
        return True


def create_venv():
    # This script may itself be run by .venv/bin/python, which is about to disappear.
    base = getattr(sys, "_base_executable", None) or sys.executable
    if os.path.islink(VENV) or os.path.isfile(VENV):
        os.remove(VENV)
    elif os.path.isdir(VENV):
        shutil.rmtree(VENV)
    if subprocess.run([base, "-m", "venv", VENV]).returncode != 0:
        fail(f"{base} -m venv failed; on Debian and Ubuntu the package python3-venv is needed")


def install(extras):
    requirement = f".[{','.join(sorted(extras))}]"
    command = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "off", "-e", requirement]
    lines = []
    with open(LOG, "w", encoding="utf-8") as log:
        pip = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
        )
        for line in pip.stdout:
            log.write(line)
            lines.append(line)
            report_progress(line)
    if pip.wait() != 0:
        sys.stderr.writelines(lines[-TAIL:])
        fail(f"pip could not install {requirement} (exit status {pip.returncode}); all it said is in {LOG}")


def report_progress(line):
    """Say the part of pip's output that tells someone waiting what is going on."""
    download = re.match(r"\s*Downloading (\S+) \(([\d.]+) ([MG])B\)", line)
    if download:
        name, amount, unit = download.groups()
        if unit == "G" or float(amount) >= SHOWN_DOWNLOAD_MB:
            say(f"  downloading {name.rsplit('/', 1)[-1].split('-')[0]} ({amount} {unit}B)")
    elif line.startswith("Installing collected packages:"):
        count = line.count(",") + 1
        say(f"  installing {count} package{'s' if count > 1 else ''}")


def dotted(version):
    return ".".join(str(part) for part in version)


def listed(names):
    return ", ".join(sorted(names)) or "none"


def say(message):
    print(message, flush=True)


def fail(message):
    sys.exit("error: " + message)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the next call goes on from here")
