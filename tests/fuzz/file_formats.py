"""A small good file of every kind that is read, and the loader that the commands read it with."""

from __future__ import annotations

import bz2
import gzip
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from bures import ConditionalMoments, NystroemMap
from bures.data import image_folder, load_domain
from bures.data._digits import _read_idx, _read_usps
from bures.experiments import bench_table, load_grid, load_space, read_results, render_table
from bures.feature_maps import FeatureMap
from bures.figures._ledgers import accuracies, chosen_results, ledger_results
from bures.moments import read_chunks
from bures.networks import read_weights
from bures.report import read_runs, write_report
from bures.training import Recipe, RunFolder, assemble, load_model, load_recipe, save_model
from bures.training._checkpoint import load_checkpoint, save_checkpoint
from bures.training._kept import KeptDomain, KeptSamples, read_kept, write_kept

FINGERPRINT = {"recipe.lr": 0.1, "data": "0" * 32}
NAMES = ("cat", "dog")


@dataclass(frozen=True)
class FileKind:
    """How a good file is made in a folder, which of its files is damaged, and how it is read."""

    name: str
    build: Callable[[Path], Path]
    read: Callable[[Path], Any]
    text: bool = False
    weight: float = 1.0
    structure: str | None = None


KINDS: dict[str, FileKind] = {}


def kind(
    name: str,
    read: Callable[[Path], Any],
    *,
    text: bool = False,
    weight: float = 1.0,
    structure: str | None = None,
) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Make a function that writes a good file a kind of file."""

    def add(build: Callable[[Path], Path]) -> Callable[[Path], Path]:
        KINDS[name] = FileKind(name, build, read, text, weight, structure)
        return build

    return add


def _sample(n: int = 12) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3)), np.arange(n) % 2


def _domain(path: Path) -> Any:
    return load_domain(str(path))


@kind("npz", _domain, weight=3)
def npz(folder: Path) -> Path:
    x, y = _sample()
    np.savez(folder / "a.npz", x=x, y=y, classes=np.array(NAMES), files=np.array([f"{i}.png" for i in range(len(y))]))
    return folder / "a.npz"


@kind("npz-compressed", _domain, weight=2)
def npz_compressed(folder: Path) -> Path:
    x, y = _sample()
    np.savez_compressed(folder / "a.npz", amazon_x=x, amazon_y=y)
    return folder / "a.npz"


@kind("npy", _domain, weight=2)
def npy(folder: Path) -> Path:
    np.save(folder / "a.npy", _sample()[0])
    return folder / "a.npy"


@kind("npy-stream", lambda path: list(read_chunks(path, _sample()[1], chunk=5)))
def npy_stream(folder: Path) -> Path:
    return npy(folder)


@kind("mat", _domain, weight=3)
def mat(folder: Path) -> Path:
    from scipy.io import savemat

    x, y = _sample()
    savemat(folder / "a.mat", {"fts": x, "labels": y + 1})
    return folder / "a.mat"


@kind("mat-compressed", _domain, weight=2)
def mat_compressed(folder: Path) -> Path:
    from scipy.io import savemat

    x, y = _sample()
    savemat(folder / "a.mat", {"fts": x, "labels": np.array(NAMES, dtype=object)[y]}, do_compression=True)
    return folder / "a.mat"


@kind("csv", _domain, text=True, weight=3)
def csv(folder: Path) -> Path:
    x, y = _sample()
    rows = (f"{number}.png,{row[0]},{row[1]},{row[2]},{NAMES[y[number]]}" for number, row in enumerate(x))
    lines = ["file,a,b,c,label", *rows]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    return folder / "a.csv"


@kind("parquet", _domain, weight=2)
def parquet(folder: Path) -> Path:
    import pandas as pd

    x, y = _sample()
    pd.DataFrame(x, columns=list("abc")).assign(label=np.array(NAMES)[y]).to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


@kind("parquet-stream", lambda path: list(read_chunks(path, chunk=5)))
def parquet_stream(folder: Path) -> Path:
    return parquet(folder)


def _images(folder: Path, suffix: str) -> Path:
    rng = np.random.default_rng(0)
    for name in NAMES:
        (folder / "images" / name).mkdir(parents=True)
        for number in range(2):
            picture = Image.fromarray(rng.integers(256, size=(9, 8, 3), dtype=np.uint8))
            picture.save(folder / "images" / name / f"{number}{suffix}")
    return folder / "images" / "cat" / f"0{suffix}"


def _read_images(path: Path) -> Any:
    domain = image_folder(path.parents[1], size=8, strict=True, n_threads=1)
    return domain.samples.take(torch.arange(len(domain)))


@kind("png", _read_images, weight=2)
def png(folder: Path) -> Path:
    return _images(folder, ".png")


@kind("jpeg", _read_images, weight=2)
def jpeg(folder: Path) -> Path:
    return _images(folder, ".jpg")


@kind("bmp", _read_images)
def bmp(folder: Path) -> Path:
    return _images(folder, ".bmp")


@kind("tiff", _read_images)
def tiff(folder: Path) -> Path:
    return _images(folder, ".tif")


@kind("mnist", lambda path: _read_idx(path, 3))
def mnist_files(folder: Path) -> Path:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = struct.pack(">HBB3I", 0, 8, 3, 3, 28, 28) + bytes(3 * 784)
    (raw / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, mtime=0))
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">HBBI", 0, 8, 1, 3) + b"\0\1\2", mtime=0)
    )
    return raw / "t10k-images-idx3-ubyte.gz"


@kind("usps", _read_usps)
def usps_file(folder: Path) -> Path:
    (folder / "USPS").mkdir()
    line = "6 " + " ".join(f"{i}:{-1 + i / 200:.3f}" for i in range(1, 257))
    (folder / "USPS" / "usps.t.bz2").write_bytes(bz2.compress(f"{line}\n{line}\n".encode()))
    return folder / "USPS" / "usps.t.bz2"


@kind("recipe", load_recipe, text=True, weight=3, structure="yaml")
def recipe_file(folder: Path) -> Path:
    Recipe(method="ckw", options={"entropy": 0.05}, epochs=5).save(folder / "a.yaml")
    return folder / "a.yaml"


@kind("grid", load_grid, text=True, weight=3, structure="yaml")
def grid_file(folder: Path) -> Path:
    (folder / "a.yaml").write_text(
        "title: Two digits\ndomains: {usps: usps, mnist: mnist}\ntasks: ['usps:mnist']\nabout: |\n  Words.\n"
        "stages:\n- recipe: digits\n  methods: [ckb, source]\n  seeds: [0, 1]\n  changes: {lr: 0.1}\n"
        "- methods: [coral]\n  seeds: [0]\nnot_run: [[digits, dmp]]\nshort: {usps: U}\n"
    )
    return folder / "a.yaml"


@kind("space", lambda path: load_space(path, Recipe()), text=True, structure="yaml")
def space_file(folder: Path) -> Path:
    (folder / "a.yaml").write_text("lr: {low: 1e-4, high: 0.1, log: true}\nbatch_size: {choices: [32, 64]}\n")
    return folder / "a.yaml"


@kind("checkpoint", lambda path: load_checkpoint(path, FINGERPRINT), weight=2)
def checkpoint(folder: Path) -> Path:
    save_checkpoint(folder / "last.pt", {"step": 3, "weights": {"w": torch.ones(4, 3)}}, FINGERPRINT)
    return folder / "last.pt"


@kind("weights-pth", read_weights, weight=2)
def weights_pth(folder: Path) -> Path:
    torch.save({"state_dict": {"module.w": torch.ones(3, 2), "module.b": torch.zeros(2)}}, folder / "a.pth")
    return folder / "a.pth"


@kind("weights-pth-old", read_weights)
def weights_pth_old(folder: Path) -> Path:
    torch.save({"w": torch.ones(3, 2)}, folder / "a.pth", _use_new_zipfile_serialization=False)
    return folder / "a.pth"


@kind("weights-safetensors", read_weights)
def weights_safetensors(folder: Path) -> Path:
    save_file({"w": torch.ones(3, 2), "b": torch.zeros(2)}, folder / "a.safetensors")
    return folder / "a.safetensors"


def _result(seed: int, task: str) -> dict[str, Any]:
    source, target = task.split("->")
    return {
        "schema": 2, "key": f"{source}|{target}|digits|ckb|{seed}", "task": task, "source": source, "target": target,
        "recipe_name": "digits", "method": "ckb", "seed": seed, "changes": {}, "recipe": {"method": "ckb"},
        "final": {"accuracy": 0.9, "score": 1.0, "batchnorm": "target", "accuracy_by_batchnorm": {"target": 0.9},
                  "best": {"epoch": 2, "accuracy": 0.91}},
        "epochs": {"target_accuracy": [0.5, 0.91, 0.9], "target_score": [0.1, 0.2, 0.3]},
        "hardware": {"processor": "a"}, "seconds": 3.0,
    }  # fmt: skip


def _read_ledger(path: Path) -> Any:
    results = read_results(path)
    try:
        table = bench_table(load_grid("digits"), results)
        return [render_table(table, one) for one in ("markdown", "html", "latex", "csv")]
    finally:
        accuracies(chosen_results(ledger_results(path)))


@kind("ledger", _read_ledger, text=True, weight=3, structure="jsonl")
def ledger(folder: Path) -> Path:
    lines = [json.dumps(_result(seed, task)) for seed in (0, 1) for task in ("usps->mnist", "mnist->usps")]
    (folder / "digits.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "digits.jsonl"


def run_folder(folder: Path, names: tuple[str, ...] = NAMES, ids: tuple[str, ...] | None = None) -> RunFolder:
    """A small finished run."""
    run = RunFolder(folder / "run")
    run.create()
    sides = []
    for name in ("here", "there"):
        n = 6
        classes = (torch.arange(n) % len(names)).int()
        tensors = {
            "index": torch.arange(n).int(), "features": torch.randn(n, 3).half(), "before": torch.randn(2, 3).half(),
            "prediction": classes, "confidence": torch.full((n,), 0.9), "entropy": torch.full((n,), 0.1),
            "labels": classes.clone(), "p_true": torch.full((n,), 0.9),
        }  # fmt: skip
        sides.append(KeptDomain(name=name, total=n, ids=ids and ids[:n], sheet=None, side=0, **tensors))
    part = {"name": "here", "samples": 6, "counts": None, "checksum": "0" * 32}
    rows = [{"epoch": e, "step": e, "loss": 1 / e, "target_accuracy": 0.5, "target_score": 0.1 * e} for e in (1, 2)]
    final = {"accuracy": 0.5, "score": 0.2, "effective_classes": 2.0, "batchnorm": "training", "seconds": 3.0,
             "accuracy_by_batchnorm": {"training": 0.5},
             "best": {"epoch": 2, "score": 0.2, "accuracy": 0.5}}  # fmt: skip
    run.write_manifest(
        {
            "status": "finished", "command": "bures adapt", "recipe": {"method": "ckb", "epochs": 2, "options": {}},
            "seed": 0, "trains_on_target_labels": False, "network": {"name": "identity"},
            "data": dict.fromkeys(("source", "target", "evaluation"), part), "versions": {"bures": "0"},
            "hardware": {"cores": 2}, "notes": [], "epochs": rows, "final": final,
        }
    )  # fmt: skip
    run.write_log(rows)
    run.write_confusion(torch.eye(len(names)).long(), names)
    write_kept(run.samples, KeptSamples(names, "training", sides[0], sides[1]))
    return run


def _report(path: Path) -> Any:
    folder = path.parent
    read_runs([folder])
    return write_report([folder], folder.parent / "report.html", tsne=0)


@kind("manifest", _report, text=True, weight=3, structure="json")
def manifest(folder: Path) -> Path:
    return run_folder(folder).manifest


@kind("log", _report, text=True)
def log(folder: Path) -> Path:
    run = run_folder(folder)
    content = json.loads(run.manifest.read_text())
    run.manifest.write_text(json.dumps(content | {"epochs": [], "status": "running"}))
    return run.log


@kind("confusion", _report, text=True)
def confusion(folder: Path) -> Path:
    return run_folder(folder).confusion


@kind("kept-samples", read_kept, weight=2, structure="safetensors")
def kept_samples(folder: Path) -> Path:
    return run_folder(folder).samples


@kind("kept-samples-report", _report, structure="safetensors")
def kept_samples_report(folder: Path) -> Path:
    return run_folder(folder).samples


@kind("model", load_model, weight=2, structure="safetensors")
def model(folder: Path) -> Path:
    spec, network, _ = assemble(Recipe(network="identity", hidden=4, features=3), 2, (3,))
    return save_model(folder / "model.safetensors", network, spec, NAMES)


def _map() -> NystroemMap:
    return NystroemMap.fit(_sample()[0], n_landmarks=4)


@kind("feature-map", FeatureMap.load, structure="safetensors")
def feature_map(folder: Path) -> Path:
    return _map().save(folder / "map.safetensors")


@kind("moments", lambda path: ConditionalMoments.load(path, _map()), structure="safetensors")
def moments(folder: Path) -> Path:
    return ConditionalMoments(_map(), 2).update(*_sample()).save(folder / "moments.safetensors")
