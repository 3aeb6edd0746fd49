"""Files that are made to do harm: nothing in them is run, and what is refused is refused with a reason."""

import ast
import json
import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import invoke

import bures
from bures.cli._job import read_overrides
from bures.data import check_images, image_folder, load_domain
from bures.experiments import load_grid, load_space, read_results
from bures.files import read_yaml
from bures.moments import read_chunks
from bures.networks import read_weights
from bures.report import write_report
from bures.shift import shift_report
from bures.training import CheckpointError, Recipe, RunFolder, load_model, load_recipe
from bures.training._checkpoint import load_checkpoint
from bures.training._csv import csv_cell, predictions_csv, table_csv
from tests.fuzz.file_formats import run_folder

SOURCE = Path(bures.__file__).parent
HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "[/red]",
    "{{7*7}}",
)


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


@pytest.fixture
def canary(tmp_path):
    """A folder that exists only if code in a file was run."""
    path = tmp_path / "was-run"
    yield path
    assert not path.exists(), "code in a file was run"


def test_the_payload_would_work(tmp_path):
    pickle.loads(pickle.dumps(Touch(tmp_path / "made")))
    assert (tmp_path / "made").is_dir()


def as_object(canary):
    array = np.empty(1, dtype=object)
    array[0] = Touch(canary)
    return array


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_pickled_arrays_are_refused_with_an_explanation(tmp_path, canary, suffix):
    file = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(file, x=as_object(canary), y=np.zeros(1))
    else:
        np.save(file, as_object(canary), allow_pickle=True)
    with pytest.raises(ValueError, match=r"(?s)a\.np. holds pickled Python objects.*could run any code") as caught:
        load_domain(str(file))
    assert str(file) in str(caught.value)


def test_pickled_labels_beside_good_features_are_refused(tmp_path, canary):
    file = tmp_path / "a.npz"
    np.savez(file, x=np.zeros((1, 2)), y=as_object(canary))
    with pytest.raises(ValueError, match="pickled Python objects"):
        load_domain(str(file))


def test_a_stream_of_pickled_rows_is_refused(tmp_path, canary):
    np.save(tmp_path / "a.npy", as_object(canary), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npy cannot be read"):
        list(read_chunks(tmp_path / "a.npy", np.zeros(1)))


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.mat", "a.csv", "a.parquet"])
def test_a_bare_pickle_under_any_name_is_refused(tmp_path, canary, name):
    file = tmp_path / name
    file.write_bytes(pickle.dumps({"x": Touch(canary)}))
    with pytest.raises(ValueError, match=f"{name} (cannot be read|holds pickled)"):
        load_domain(str(file))


def test_arrow_extension_types_are_not_unpickled(tmp_path, canary):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    metadata = {b"ARROW:extension:name": b"arrow.py_extension_type",
                b"ARROW:extension:metadata": pickle.dumps(Touch(canary))}  # fmt: skip
    schema = pa.schema([pa.field("a", pa.float64(), metadata=metadata), pa.field("label", pa.int64())])
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table([[1.0, 2.0], [0, 1]], schema=schema), file)
    if int(pa.__version__.split(".")[0]) == 15:  # does not read such a column at all
        with pytest.raises(ValueError, match=r"a\.parquet holds pickled Python objects"):
            load_domain(str(file))
        return
    assert len(load_domain(str(file))) == 2
    assert sum(len(x) for x, _ in read_chunks(file)) == 2


@pytest.mark.parametrize("suffix", [".pth", ".pt"])
@pytest.mark.parametrize("zipped", [True, False])
def test_weights_with_code_are_refused_with_an_explanation(tmp_path, canary, suffix, zipped):
    file = tmp_path / f"weights{suffix}"
    torch.save({"w": Touch(canary)}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        ValueError, match="not a mapping of names to tensors alone, which is all that is loaded"
    ) as caught:
        read_weights(file)
    assert file.name in str(caught.value)


def test_a_checkpoint_with_code_is_refused(tmp_path, canary):
    file = tmp_path / "last.pt"
    torch.save({"schema": 1, "fingerprint": {}, "state": Touch(canary)}, file)
    with pytest.raises(CheckpointError, match=r"last\.pt is truncated or no checkpoint"):
        load_checkpoint(file, {})


def test_a_model_file_that_is_a_pickle_is_refused(tmp_path, canary):
    file = tmp_path / "model.safetensors"
    file.write_bytes(pickle.dumps(Touch(canary)))
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load_model(file)


# ---------------------------------------------------------------------------------------------------------------- YAML

HOSTILE_YAML = {
    "an object": "method: !!python/object/apply:os.mkdir [{canary}]",
    "a module": "method: !!python/module:os",
    "a name": "method: !!python/name:os.system",
    "deep nesting": "method: " + "[" * 900,
    "aliases": "a: &a [1,1,1,1,1,1,1,1,1]\n"
    + "\n".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "a value that holds itself": "method: &a [*a]",
    "a number of many digits": "epochs: " + "9" * 5000,
    "a date that is none": "method: 2001-99-99",
    "an empty number": "epochs: !!int ''",
    "two documents": "method: ckb\n---\nmethod: ckw",
    "control characters": "method: \x00\x01",
}


@pytest.mark.parametrize("what", HOSTILE_YAML)
@pytest.mark.parametrize("load", [load_recipe, load_grid, lambda path: load_space(path, Recipe())])
def test_hostile_yaml_is_refused_by_name(tmp_path, canary, what, load):
    file = tmp_path / "a.yaml"
    file.write_text(HOSTILE_YAML[what].replace("{canary}", str(canary)))
    with pytest.raises(ValueError, match=r"a\.yaml") as caught:
        load(file)
    assert len(str(caught.value)) < 5000


def test_hostile_yaml_on_the_command_line_is_refused(canary):
    with pytest.raises(ValueError, match="--set"):
        read_overrides([f"method=!!python/object/apply:os.mkdir [{canary}]"])


def test_aliases_that_people_write_are_read():
    assert read_yaml("a: &x [1, 2]\nb: *x", "a.yaml") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"key": ' + "9" * 5000 + "}", '{"key": NaN', "\xff", '"\\ud800"'])
def test_hostile_json_is_refused_by_name(tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest\.json"):
        RunFolder(tmp_path / "run").read_manifest()
    (tmp_path / "a.jsonl").write_text(text + "\n")
    with pytest.raises(ValueError, match=r"a\.jsonl is damaged in line 1"):
        read_results(tmp_path / "a.jsonl")


# -------------------------------------------------------------------------------------------------------------- images


def test_a_picture_that_claims_to_be_huge_is_no_picture(tmp_path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    file = tmp_path / "bomb.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    good, bad = check_images([file])
    assert good == []
    assert bad[0][0] == file


def test_folders_that_lead_back_to_themselves_end(tmp_path):
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / name / "0.png")
    (tmp_path / "images" / "cat" / "loop").symlink_to(tmp_path / "images", target_is_directory=True)
    assert len(image_folder(tmp_path / "images", size=4)) >= 2


def test_the_library_unpacks_no_archives():
    """Without unpacking, no path in an archive can leave a folder; a reader of archives has to come with such tests."""
    forbidden = {"tarfile", "shutil.unpack_archive"}
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & forbidden, f"{file} imports {names & forbidden}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("extractall", "unpack_archive"), f"{file}:{node.lineno} unpacks an archive"


def test_the_library_never_unpickles():
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            whole, where = ast.unparse(node.func), f"{file}:{node.lineno}"
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert whole not in ("pickle.load", "pickle.loads", "joblib.load", "yaml.load", "yaml.unsafe_load"), where
            if whole == "torch.load":
                assert options.get("weights_only") == "True", where
            if whole == "np.load":
                assert options.get("allow_pickle") == "False", where


# --------------------------------------------------------------------------------------------------- names in outputs


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_report_shows_hostile_names_as_text(tmp_path, name):
    run = run_folder(tmp_path, names=(name, "dog"), ids=(name,) * 6)
    page = write_report([run.path], tmp_path / "report.html", tsne=0).read_text()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    if name == "{{7*7}}":
        assert name in page


def test_a_report_shows_hostile_words_of_a_manifest_as_text(tmp_path):
    run = run_folder(tmp_path)
    content = json.loads(run.manifest.read_text())
    bad = HOSTILE_NAMES[0]
    content |= {"command": bad, "notes": [bad], "hardware": {bad: bad}, "versions": {bad: bad}, "network": {bad: bad}}
    content["recipe"] |= {bad: bad, "method": bad}
    for side in ("source", "target", "evaluation"):
        content["data"][side] |= {"name": bad, "checksum": bad}
    run.manifest.write_text(json.dumps(content))
    assert "<script>alert" not in write_report([run.path], tmp_path / "report.html", tsne=0).read_text()


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_shift_page_shows_hostile_names_as_text(name):
    xs, ys, xt, yt = bures.data.drifting_class(60, drift=2.0)
    names = np.array([name, "dog", "cat"])
    report = shift_report(xs, names[ys], xt, names[yt], n_permutations=19, n_bootstrap=0)
    for page in (report.to_html(), bures.explain(xs, names[ys], xt, names[yt], n_permutations=0)._repr_html_()):
        assert "<script>alert" not in page
        assert "<img src=x" not in page
    assert str(report)


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+2",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "=HYPERLINK(1)",
    "-cmd",
    "+",
    "-",
    "@",
    "=",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_begins_a_formula(text):
    assert str(csv_cell(text)).startswith("'")
    rows = table_csv([text, "b"], [[text, text]]).splitlines()
    assert all(not cell.lstrip('"').startswith(text[0]) for row in rows for cell in row.split(",") if cell)


@pytest.mark.parametrize("value", [-1.5, "-1.5", "1e-3", "+2", "nan", "-inf", "plain", ""])
def test_numbers_and_plain_words_stay_as_they_are(value):
    assert csv_cell(value) == value


def test_predictions_of_hostile_files_are_no_formulas():
    from bures.data import Domain, TensorSamples

    domain = Domain("a", TensorSamples(torch.zeros(2, 1)), (), ids=("=cmd|x", "@x.png"))
    text = predictions_csv(domain, torch.tensor([[0.9, 0.1], [0.2, 0.8]]), ["=1+1", "-x"])
    assert not any(cell.startswith(("=", "@", "-x")) for line in text.splitlines() for cell in line.split(","))


@pytest.mark.parametrize("name", ["[/red]", "[bold", "a[1]b", "\\[x]", "=1", "<b>"])
def test_commands_show_names_in_brackets_as_they_are(tmp_path, name):
    pair = bures.data.drifting_class(30, drift=1.0)
    names = np.array([name, "dog", "cat"])
    for side, x, y in (("s", pair.xs, pair.ys), ("t", pair.xt, pair.yt)):
        np.savez(tmp_path / f"{side}.npz", x=x, y=names[y], name=np.array(name))
    files = [str(tmp_path / "s.npz"), str(tmp_path / "t.npz")]
    for command in (
        ["distance", *files],
        ["doctor", "--source", files[0], "--target", files[1]],
        ["shift", *files, "--permutations", "19"],
        ["test", *files, "--conditional", "--permutations", "19"],
    ):
        outcome = invoke(*command, catch=True)
        assert outcome.exit_code in (0, 1), (command, outcome.output)
        assert outcome.exception is None or isinstance(outcome.exception, SystemExit), (command, outcome.exception)
