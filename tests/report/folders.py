"""Run folders made by hand, for what no short training would give: many samples, many classes, pictures of noise."""

import numpy as np
import torch

from bures.training import RunFolder
from bures.training._kept import KeptDomain, KeptSamples, write_kept
from bures.training._pictures import encode_sheet


def kept_domain(name, n, names, rng, *, labelled=True, side=0, ids=None, d=8, right=0.7):
    """Samples whose predictions are right with a given probability."""
    k = len(names)
    labels = rng.integers(k, size=n)
    prediction = np.where(rng.random(n) < right, labels, rng.integers(k, size=n))
    confidence = rng.uniform(0.4, 1.0, size=n)
    centres = np.random.default_rng(1).normal(size=(k, d))
    features = 4 * centres[labels] + rng.normal(size=(n, d))
    p_true = torch.as_tensor(np.where(prediction == labels, confidence, 1 - confidence)).float()
    sheet = None
    if side:
        sheet = encode_sheet(rng.integers(256, size=(n, side, side, 3), dtype=np.uint8), 80)
    return KeptDomain(
        name=name,
        total=2 * n,
        index=torch.arange(n, dtype=torch.int32),
        features=torch.as_tensor(features).half(),
        before=torch.as_tensor(rng.normal(size=(min(n, 200), d))).half(),
        prediction=torch.as_tensor(prediction).int(),
        confidence=torch.as_tensor(confidence).float(),
        entropy=torch.as_tensor(-np.log(confidence)).float(),
        labels=torch.as_tensor(labels).int() if labelled else None,
        p_true=p_true if labelled else None,
        ids=ids,
        sheet=sheet,
        side=side,
    )


def write_run(path, names=("cat", "dog"), *, n=60, method="ckb", labelled=True, side=0, seed=0, ids=None, right=0.7):
    """A finished run on made-up samples; its accuracy is that of the samples that are kept."""
    rng = np.random.default_rng(seed)
    source = kept_domain("here", n, names, rng, side=side, ids=ids)
    target = kept_domain("there", n, names, rng, labelled=labelled, side=side, ids=ids, right=right)
    folder = RunFolder(path)
    folder.create()
    accuracy = float((target.labels == target.prediction).double().mean()) if labelled else None
    part = {"name": "here", "samples": 2 * n, "counts": None, "checksum": "0" * 32}
    rows = [
        {
            "epoch": e,
            "step": 10 * e,
            "loss": 1 / e,
            "source_accuracy": 1 - 0.5 / e,
            "target_score": 0.1 * e,
            "seconds": e,
        }
        for e in (1, 2, 3)
    ]
    final = {"accuracy": accuracy, "score": 0.3, "effective_classes": 2.0, "batchnorm": "training", "seconds": 3.0}
    final |= {"accuracy_by_batchnorm": {"training": accuracy}, "best": {"epoch": 3, "score": 0.3, "accuracy": accuracy}}
    folder.write_manifest(
        {
            "status": "finished",
            "command": "bures adapt --source here --target there",
            "recipe": {"method": method, "epochs": 3, "options": {}},
            "seed": seed,
            "trains_on_target_labels": False,
            "network": {"name": "identity"},
            "data": {
                "source": part,
                "target": part | {"name": "there"},
                "evaluation": part | {"name": "there"},
                "origin": {"source": "here", "target": "there"},
            },
            "versions": {"bures": "0"},
            "hardware": {"cores": 2},
            "notes": [],
            "epochs": rows,
            "final": final,
        }
    )
    folder.write_log(rows)
    if labelled:
        k = len(names)
        counts = torch.bincount(target.labels.long() * k + target.prediction.long(), minlength=k * k).reshape(k, k)
        folder.write_confusion(counts, names)
    write_kept(folder.samples, KeptSamples(tuple(names), "training", source, target))
    return folder
