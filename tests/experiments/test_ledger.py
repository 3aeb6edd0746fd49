"""The ledger: whole lines whatever happens, and no cell twice."""

import errno
import json
import multiprocessing
import os

import pytest

from bures.experiments import Ledger, read_results


def write_many(path, name, n):
    ledger = Ledger(path)
    for number in range(n):
        ledger.append({"key": f"{name}{number}", "padding": name * 5000})
        ledger.append({"key": "shared", "from": name})


def test_processes_that_write_at_once_leave_whole_lines_and_no_key_twice(tmp_path):
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(path, name, 25)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == len({line["key"] for line in lines}) == 51
    assert all(line["padding"] == line["key"][0] * 5000 for line in lines if line["key"] != "shared")


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        ('{"key": "cut', ["a", "c"]),
        ('{"key": "b"}', ["a", "b", "c"]),
        # Valid JSON and no result: cut off as well, or the next reader would call the ledger damaged.
        ("{}", ["a", "c"]),
        ("3", ["a", "c"]),
        ('{"key": 1}', ["a", "c"]),
        ('{"key": "b", "final": 3}', ["a", "c"]),
        ("[" * 100_000, ["a", "c"]),  # deeper than json can read
    ],
)
def test_a_line_that_was_cut_off_goes_and_one_without_its_end_stays(tmp_path, tail, kept):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"key": "a"}\n' + tail)
    assert [result["key"] for result in read_results(path)] == kept[:-1]
    assert Ledger(path).append({"key": "c"})
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == kept
    assert [result["key"] for result in read_results(path)] == kept


def test_a_last_line_of_a_later_schema_is_refused_and_not_cut_off(tmp_path):
    """It lacks nothing but its end, and is the result of somebody's training."""
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"key": "a"}\n{"key": "b", "schema": 99, "seed": "of another kind"}')
    for _ in range(2):
        with pytest.raises(ValueError, match="damaged in line 2: it has schema 99"):
            read_results(path)
        with pytest.raises(ValueError, match="damaged in line 2: it has schema 99"):
            Ledger(path).append({"key": "c"})
    assert json.loads(path.read_text().splitlines()[1])["key"] == "b"


def test_lines_that_others_add_are_seen(tmp_path):
    here, there = Ledger(tmp_path / "ledger.jsonl"), Ledger(tmp_path / "ledger.jsonl")
    assert here.results() == {}
    there.append({"key": "a"})
    assert list(here.results()) == ["a"]
    there.append({"key": "b"})
    assert list(here.results()) == ["a", "b"]
    assert not here.append({"key": "b"})


def test_a_cell_is_claimed_once_and_not_when_it_is_finished(tmp_path):
    here, there = Ledger(tmp_path / "ledger.jsonl"), Ledger(tmp_path / "ledger.jsonl")
    claim = here.claim("a")
    assert there.claim("a") is None
    other = there.claim("b")
    claim.release()
    again = there.claim("a")
    there.append({"key": "a"})
    again.release()
    assert here.claim("a") is None
    other.release()
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.jsonl"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"key": 1\n{"key": "b"}\n', "damaged in line 1"),
        ('{"key": "a"}\n[1]\n', "damaged in line 2.*a result with a key"),
        ('{"key": "a", "schema": 99}\n', "schema 99, and this version of bures reads up to 2"),
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path, text, message):
    path = tmp_path / "ledger.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_results(path)


def test_numbers_that_are_not_finite_are_null(tmp_path):
    Ledger(tmp_path / "ledger.jsonl").append({"key": "a", "loss": float("nan")})
    assert json.loads((tmp_path / "ledger.jsonl").read_text(), parse_constant=pytest.fail) == {"key": "a", "loss": None}


def test_a_log_can_be_written_for_any_key_and_goes_with_its_folder(tmp_path):
    ledger = Ledger(tmp_path / "digits.jsonl")
    keys = ["../../etc|x", "a/b#c|ü|ckb+mmd|0" + "|long" * 100, "a?b", "a*b"]
    logs = [ledger.write_log(key, key) for key in keys]
    assert len(set(logs)) == len(keys)
    assert {log.parent for log in logs} == {tmp_path / "digits.logs"}
    for key in keys:
        ledger.remove_log(key)
    assert not (tmp_path / "digits.logs").exists()


def test_a_line_that_finds_no_room_is_not_there_at_all(tmp_path, monkeypatch):
    """A full disk first takes a part of the line without an error."""
    ledger = Ledger(tmp_path / "a.jsonl")
    ledger.append({"key": "one"})
    before, original, left = ledger.path.read_bytes(), os.write, [10]

    def write(handle, content):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        size = original(handle, content[: left[0]])
        left[0] -= size
        return size

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(
            OSError, match=r"could not be written to .*a\.jsonl \(No space left on device\); those in it are"
        ):
            ledger.append({"key": "two"})
    assert ledger.path.read_bytes() == before
    assert ledger.append({"key": "two"})
    assert [result["key"] for result in read_results(ledger.path)] == ["one", "two"]
