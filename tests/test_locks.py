"""Locks on files: one holder, named; the dead hold nothing, nor do the children of the living."""

import errno
import json
import os
import platform
import signal
import subprocess
import sys

import pytest

from bures import locks
from bures.locks import FileLock

pytestmark = pytest.mark.skipif(locks.fcntl is None, reason="there are no locks on files here")

HOLD = (
    "import sys, time; from bures.locks import FileLock; FileLock.take(sys.argv[1]); print(flush=True); time.sleep(60)"
)


def test_the_file_names_its_holder_while_the_lock_is_held(tmp_path):
    path = tmp_path / ".lock"
    lock = FileLock.take(path)
    assert FileLock.holder(path) == (os.getpid(), platform.node())
    assert str(FileLock.holder(path)) == f"process {os.getpid()} on {platform.node()}"
    assert FileLock.take(path) is None
    lock.release()
    assert not path.exists()
    assert FileLock.holder(path) is None


def test_what_a_killed_process_leaves_is_taken_over(tmp_path):
    path = tmp_path / ".lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    process.stdout.readline()
    assert FileLock.take(path) is None
    assert FileLock.holder(path).pid == process.pid
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert path.exists()
    lock = FileLock.take(path)
    assert FileLock.holder(path).pid == os.getpid()
    lock.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # the child does nothing that could wait
def test_a_forked_child_neither_holds_nor_releases(tmp_path):
    path = tmp_path / ".lock"
    lock = FileLock.take(path)
    ready, wait = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        lock.release()
        os.write(ready[1], b"x")
        os.read(wait[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    assert path.exists()  # the child has not removed it
    lock.release()
    again = FileLock.take(path)  # and does not hold it, though it lives
    assert again is not None
    again.release()
    os.write(wait[1], b"x")
    assert os.waitpid(child, 0)[1] == 0


def test_a_file_that_was_removed_between_opening_and_locking_is_no_lock(tmp_path, monkeypatch):
    path = tmp_path / ".lock"
    first, original = FileLock.take(path), locks._try_to_lock

    def late(handle, path):
        monkeypatch.undo()
        first.release()
        return original(handle, path)

    monkeypatch.setattr(locks, "_try_to_lock", late)
    second = FileLock.take(path)
    assert path.exists()
    assert FileLock.take(path) is None
    second.release()


@pytest.mark.parametrize(
    ("content", "free"),
    [
        (None, True),
        ("no JSON", True),
        ({"pid": 2**22 + 1, "host": platform.node()}, True),  # beyond the largest number of a process
        ({"pid": 1, "host": platform.node()}, False),
        ({"pid": 2**22 + 1, "host": "elsewhere"}, False),
    ],
)
def test_where_the_file_system_has_no_locks_the_word_of_the_file_counts(content, free, tmp_path, monkeypatch):
    def unsupported(handle, operation):
        raise OSError(errno.ENOLCK, "no locks")

    path = tmp_path / ".lock"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    monkeypatch.setattr(locks.fcntl, "flock", unsupported)
    lock = FileLock.take(path)
    assert (lock is not None) == free
