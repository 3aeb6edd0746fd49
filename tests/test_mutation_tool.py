"""The tool that puts faults into the code: what it keeps, what it takes over, and what it tells."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent.parent / "tools"
if not TOOLS.is_dir():
    pytest.skip("not a source tree", allow_module_level=True)

SOURCE = "def f(x):\n    return x + 1\n"


@pytest.fixture
def tool(monkeypatch):
    """A function that imports a module of tools/."""
    import importlib

    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    return importlib.import_module


def tried(records, tool, fate, path="a.py", source=SOURCE):
    """Records of all faults of a source, of one fate."""
    found = tool("mutation_operators").faults(source)
    assert [fault.after for fault in found] == ["return None", "x - 1", "2"]
    return [records.described(path, source, n, fault) | {"fate": fate, "by": ""} for n, fault in enumerate(found)]


def test_a_record_outlives_its_process_and_a_torn_line_is_left_out(tool, tmp_path):
    records = tool("mutation_records")
    first = tried(records, tool, "killed")
    records.Records(tmp_path).add(first[:2])
    with (tmp_path / records.NAME).open("a") as file:
        file.write(json.dumps(first[2])[:40])
    again = records.Records(tmp_path)
    assert list(again.tried("a.py", SOURCE)) == first[:2]
    assert not list(again.tried("a.py", SOURCE + "\n"))  # another file by now


def test_what_another_machine_noticed_counts_and_what_it_did_not_does_not_undo(tool, tmp_path):
    records = tool("mutation_records")
    killed, survived = (tried(records, tool, fate) for fate in ("killed", "survived"))
    here, there = records.Records(tmp_path / "here"), records.Records(tmp_path / "there")
    here.add([killed[0], survived[1]])
    there.add([survived[0], killed[1], survived[2]])
    assert here.merge(tmp_path / "there") == (3, 2)
    fates = [record["fate"] for record in here.tried("a.py", SOURCE)]
    assert fates == ["killed", "killed", "survived"]
    assert [record["fate"] for record in records.Records(tmp_path / "here").tried("a.py", SOURCE)] == fates


def test_figures_are_those_of_files_that_were_tried_as_a_whole(tool, tmp_path, monkeypatch):
    records = tool("mutation_records")
    monkeypatch.setattr(records, "RESULT", tmp_path / "mutation.json")
    reason = 'function = "f"\ntext = "return x + 1"\nbefore = "1"\nafter = "2"\nwhy = "it may"'
    (tmp_path / "reasons.toml").write_text(f"[[survivor]]\n{reason}\n")
    monkeypatch.setattr(records, "REASONS", tmp_path / "reasons.toml")
    kept = records.Records(tmp_path)
    killed = tried(records, tool, "killed")
    kept.add([*killed[:2], tried(records, tool, "survived")[2], tried(records, tool, "killed", "b.py")[0]])
    records.publish(kept, {"a.py": SOURCE, "b.py": SOURCE, "c.py": "X = ''\n"}, ["tests"])
    told = json.loads((tmp_path / "mutation.json").read_text())
    assert told["total"] == {"faults": 3, "noticed": 2, "explained": 1}
    assert list(told["files"]) == ["a.py"]
    assert told["not_tried"] == ["b.py"]
    assert [survivor["why"] for survivor in told["survivors"]] == ["it may"]


MODULE = """\
LIMIT = 3
def use():
    return LIMIT, 5
class Rule:
    applies = True
    def use(self, x=7):
        return x
"""


def test_a_fault_reaches_functions_methods_constants_and_attributes_of_classes(tool, tmp_path, monkeypatch):
    (tmp_path / "with_faults.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    operators, children = tool("mutation_operators"), tool("mutation_children")
    module = tool("with_faults")
    use, rule = module.use, module.Rule()  # known to others before the fault
    found = set()
    for fault in operators.faults(MODULE):
        if not fault.before.startswith("return"):
            children.put_in("src/with_faults.py", operators.faulty(MODULE, fault))
            found.add((module.LIMIT, use()[1], rule.applies, rule.use()))
    sys.modules.pop("with_faults")
    assert found == {(4, 5, True, 7), (3, 6, True, 7), (3, 5, False, 7), (3, 5, True, 8)}


ON_IMPORT = """\
LIMIT = 3
def double(x):
    return 2 * x
def made():
    return double(LIMIT)
TABLE = made(), 1
def use(x):
    return x + TABLE[0]
def other(x):
    return x - 1
"""


def test_what_runs_on_import_is_tried_by_tests_of_what_reads_it(tool):
    """A constant, a function that makes one, and a function that this one calls: no test passes over their lines."""
    reading = tool("mutation_map").reading
    for line in (1, 3, 5, 6):
        assert reading(ON_IMPORT, line, run={8, 10}) == {8}
    assert reading(ON_IMPORT, 1, run={5, 8, 10}) == {5}  # a test calls it: what it returns then, not the constant
    assert reading(ON_IMPORT, 10, run={8}) == set()


def test_tests_of_a_constant_are_those_that_read_it_or_else_all_of_the_module(tool):
    lines = object.__new__(tool("mutation_map").LineMap)
    lines.tests = {"a.py": {8: ["use"], 10: ["other"]}}
    lines.breadth, lines.repeat = {"use": 2, "other": 1}, {"use": 0, "other": 0}
    found = {
        fault.line: lines.chosen("a.py", ON_IMPORT, fault) for fault in tool("mutation_operators").faults(ON_IMPORT)
    }
    assert found == {1: ["use"], 3: ["use"], 5: ["use"], 6: ["use"], 8: ["use"], 10: ["other"]}
    alone = "UNUSED = 3\n" + "\n" * 6 + "def other(x):\n    return x\n\n"
    (fault, *_) = tool("mutation_operators").faults(alone)
    assert lines.chosen("a.py", alone, fault) == ["other", "use"]


def test_a_sample_is_the_same_each_time_and_published_as_one(tool, tmp_path, monkeypatch):
    records = tool("mutation_records")
    monkeypatch.setattr(records, "RESULT", tmp_path / "mutation.json")
    source = SOURCE * 7
    assert records.drawn(source, None) == records.drawn(source, 21) == list(range(21))
    chosen = records.drawn(source, 8)
    assert len(set(chosen)) == 8
    assert chosen == records.drawn(source, 8) != list(range(8))
    kept = records.Records(tmp_path)
    for number, fault in enumerate(tool("mutation_operators").faults(source)):
        if number in chosen or number == min(set(range(21)) - set(chosen)):  # one more, which does not count
            kept.add([records.described("a.py", source, number, fault) | {"fate": "killed", "by": ""}])
    records.publish(kept, {"a.py": source}, ["tests"])
    assert json.loads(records.RESULT.read_text())["not_tried"] == ["a.py"]
    records.publish(kept, {"a.py": source}, ["tests"], sample=8)
    (told,) = json.loads(records.RESULT.read_text())["files"].values()
    assert (told["faults"], told["of"], told["noticed"]) == (8, 21, 8)
    row = tool("quality_page").mutation(json.loads(records.RESULT.read_text()))
    assert "| a.py | 8 of 21, drawn at random | 8 of 8 (100.0 %) | 0 | 0 |" in row


def test_children_say_what_came_of_their_work(tool):
    children = tool("mutation_children")

    def broken():
        raise NameError

    def busy():
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0.1)
        while True:
            pass

    works = {
        "nothing": lambda: "",
        "noticed": lambda: "tests/a.py::test",
        "broken": broken,
        "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "hung": lambda: time.sleep(60),
        "busy": busy,
    }
    some = (children.Work(name, do, 0) for name, do in works.items())
    fates = {name: (fate, answer) for name, fate, answer in children.in_children(some, jobs=3)}
    assert fates == {
        "nothing": ("survived", ""),
        "noticed": ("killed", "tests/a.py::test"),
        "broken": ("killed", "NameError on import"),
        "killed": ("killed", "signal 9"),
        "hung": ("hung", "signal 14"),
        "busy": ("hung", f"signal {signal.SIGPROF}"),
    }


def test_no_work_is_begun_when_the_time_is_up(tool):
    children = tool("mutation_children")
    works = (children.Work(number, lambda: "", 5) for number in range(3))
    assert list(children.in_children(works, 2, end=time.monotonic() - 1)) == []
    assert next(works).key == 0
