"""Atomic files: whole, or as before."""

import errno
import json
import os
import resource

import pytest

from bures.files import atomic_file, to_json, write_json, write_text


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
