"""Atomic files: whole, or as before."""

import errno
import io
import json
import os
import resource
import socket
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from bures.data import optdigits, write_features
from bures.files import atomic_file, check_output, to_json, write_json, write_text


def test_a_failed_write_leaves_the_old_content_and_no_litter(tmp_path):
    path = write_text(tmp_path / "a.txt", "before")
    with pytest.raises(TypeError, match="bytes"), atomic_file(path) as stream:
        stream.writelines([b"half", "of it"])
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failed_first_write_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="no"), atomic_file(tmp_path / "b.bin"):
        raise ValueError("no")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_told_with_the_file_that_found_no_room(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"a\.bin") as caught:
            write_text(tmp_path / "a.bin", "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == []


def test_json_is_proper_and_lists_of_numbers_keep_to_a_line(tmp_path):
    value = {"a": [1, 2.5, float("inf")], "b": {"c": float("nan"), "d": ["x, y", "[z]"]}}
    text = write_json(tmp_path / "m.json", value).read_text()
    assert "[ 1, 2.5, null ]" in text
    assert json.loads(text) == {"a": [1, 2.5, None], "b": {"c": None, "d": ["x, y", "[z]"]}}
    assert json.loads(to_json(value)) == json.loads(text)


def read_in_background(path):
    """A thread that reads a pipe to its end, and the list that it puts the content into."""
    content = []
    thread = threading.Thread(target=lambda: content.append(path.read_bytes()), daemon=True)
    thread.start()
    return thread, content


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_into_and_stays(linked, tmp_path):
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    thread, content = read_in_background(pipe)
    write_text(check_output(path), "all of it")
    thread.join(30)
    assert content == [b"all of it"]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"][not linked :]


def test_what_fails_sends_nothing_into_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(TypeError, match="bytes"), atomic_file(tmp_path / "pipe") as stream:
            stream.writelines([b"half", "of it"])
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_a_format_that_goes_back_in_its_file_can_be_sent_into_a_pipe(tmp_path):
    pipe = tmp_path / "features.npz"
    os.mkfifo(pipe)
    thread, content = read_in_background(pipe)
    write_features(pipe, optdigits())
    thread.join(30)
    with np.load(io.BytesIO(content[0])) as read:
        assert read["x"].shape[0] == 1797


# Links in a temporary folder stand for /dev/fd and /dev/stdout: code that replaced them would harm the machine.
@pytest.mark.skipif(sys.platform != "linux", reason="descriptors have names in /proc")
def test_an_open_descriptor_is_written_into_where_it_stands(tmp_path):
    # As with `-o /dev/stdout >> file`, which must not cut or replace the file; and with `-o >(program)`.
    file = tmp_path / "all.txt"
    file.write_text("before, ")
    with open(file, "ab") as stream:
        inode = file.stat().st_ino
        (tmp_path / "one").symlink_to(f"/proc/self/fd/{stream.fileno()}")
        (tmp_path / "two").symlink_to("one")
        for name in ("one", "two"):
            write_text(check_output(tmp_path / name), "after; ")
    assert file.read_text() == "before, after; after; "
    assert file.stat().st_ino == inode
    assert (tmp_path / "one").is_symlink()
    assert (tmp_path / "two").is_symlink()
    (tmp_path / "closed").symlink_to("/proc/self/fd/99999")
    with pytest.raises(OSError, match="closed' is no open descriptor of this process"):
        check_output(tmp_path / "closed")


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors have names in /proc")
def test_the_standard_output_of_a_command_can_be_named(tmp_path):
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    code = f"from bures.files import write_text; print('one'); write_text({str(link)!r}, 'two'); print('three')"
    with open(tmp_path / "out", "ab") as stream:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=stream)
    assert (tmp_path / "out").read_text() == "one\ntwothree\n"
    assert subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE).stdout == b"one\ntwothree\n"
    assert link.is_symlink()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_points_to_is_replaced(there, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "links").mkdir()
    file, link, chain = tmp_path / "data/a.txt", tmp_path / "links/a.txt", tmp_path / "links/b.txt"
    if there:
        file.write_text("before")
    link.symlink_to("../data/a.txt")
    chain.symlink_to("a.txt")
    write_text(check_output(chain), "after")
    assert chain.is_symlink()
    assert link.is_symlink()
    assert not file.is_symlink()
    assert file.read_text() == "after"
    assert sorted(os.listdir(tmp_path / "links")) == ["a.txt", "b.txt"]
    assert os.listdir(tmp_path / "data") == ["a.txt"]


def test_a_failed_write_through_a_link_leaves_the_old_content(tmp_path):
    file = write_text(tmp_path / "a.txt", "before")
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(ValueError, match="no"), atomic_file(tmp_path / "link"):
        raise ValueError("no")
    assert file.read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "link"]


def test_what_is_neither_file_nor_pipe_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for call in (check_output, lambda path: write_text(path, "text")):
            with pytest.raises(ValueError, match="'socket' is neither a file nor a pipe"):
                call("socket")
        assert stat.S_ISSOCK(os.lstat("socket").st_mode)
    (tmp_path / "gone").symlink_to("none/a.txt")
    with pytest.raises(FileNotFoundError, match="none is not a folder"):
        check_output("gone")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        check_output("loop")
