"""Processes that load data do not outlive the training that was killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

# A process that starts another by a fork server, which itself would live on.
SCRIPT = """
import multiprocessing, os, sys, time
from bures.training._loading import end_with_parent

def load():
    end_with_parent(0)
    print(os.getpid(), flush=True)
    time.sleep(120)

if __name__ == "__main__":
    multiprocessing.get_context("forkserver").Process(target=load).start()
    time.sleep(120)
"""


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no fork servers here")
def test_a_loader_ends_with_the_process_that_was_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    training = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    loader = int(training.stdout.readline())
    assert lives(loader)
    training.send_signal(signal.SIGKILL)
    training.wait()
    end = time.monotonic() + 60
    while lives(loader) and time.monotonic() < end:
        time.sleep(0.02)
    assert not lives(loader)
    training.stdout.close()
