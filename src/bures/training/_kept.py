"""What a run keeps of its samples for a report: features before and after training, predictions and small pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bures.data import Domain
from bures.data._samples import Samples
from bures.networks import Network
from bures.tensor_files import read_tensors, write_tensors
from bures.training._evaluation import Evaluation, Evaluator
from bures.training._pictures import picture_sheet, read_sheet
from bures.training._prediction import Predictions, can_adapt_batchnorm, predict_samples, with_target_statistics

__all__ = ["KeptDomain", "KeptSamples", "keep", "read_kept", "write_kept"]

CONTENT, SCHEMA = "samples of a run", 1
KEPT = 5000  # samples of each domain at most
NUMBERS = 2**22  # of the features of a domain at most: wide features are kept of fewer samples
BEFORE = 500  # samples of each domain whose features before training are kept


@dataclass(frozen=True, eq=False)
class KeptDomain:
    """Some samples of a domain, in an order that is random but always the same.

    Parameters
    ----------
    name : str
        Of the domain.
    total : int
        Samples of the domain; n of them are kept.
    index : Tensor (n,)
        Numbers of the kept samples in the domain.
    features : Tensor (n, d)
        By the trained network, in float16.
    before : Tensor (m, d)
        Of the first m samples, by the network at its start.
    prediction, confidence, entropy : Tensor (n,)
        Most probable class, its probability, and the entropy of the probabilities in nats.
    labels : Tensor (n,) or None
        True classes, where they are known.
    p_true : Tensor (n,) or None
        Probability of the true class.
    ids : tuple of str or None
        What the samples are called.
    sheet : bytes or None
        One picture of all samples, `COLUMNS` in a row; None for feature vectors.
    side : int
        Of a sample's picture in the sheet, in pixels.
    """

    name: str
    total: int
    index: Tensor
    features: Tensor
    before: Tensor
    prediction: Tensor
    confidence: Tensor
    entropy: Tensor
    labels: Tensor | None
    p_true: Tensor | None
    ids: tuple[str, ...] | None
    sheet: bytes | None
    side: int

    def __len__(self) -> int:
        return len(self.index)

    def pictures(self) -> NDArray[np.uint8] | None:
        """Small pictures (n, side, side, 1 or 3); None for feature vectors, an error where the sheet is damaged."""
        return None if self.sheet is None else read_sheet(self.sheet, self.side, len(self))


@dataclass(frozen=True, eq=False)
class KeptSamples:
    """What a run keeps of its samples: some of the source and some of those that were evaluated.

    ``batchnorm`` is "own" where each domain was forwarded with BatchNorm statistics of its own, else "training".
    """

    class_names: tuple[str, ...]
    batchnorm: str
    source: KeptDomain
    target: KeptDomain


def _choose(domain: Domain, n_features: int) -> Tensor:
    """Numbers of the samples to be kept, in random order; the same for every run on as many samples."""
    n = min(KEPT, max(NUMBERS // max(n_features, 1), BEFORE))
    return torch.randperm(len(domain), generator=torch.Generator().manual_seed(0))[:n]


def keep(
    source: Domain,
    evaluator: Evaluator,
    evaluation: Evaluation,
    network: Network,
    start: Network,
    batchnorm: str,
) -> KeptSamples:
    """Gather what is kept of a run that has come to its end.

    Parameters
    ----------
    source : Domain
        As it was trained on.
    evaluator : Evaluator
        Has the samples of the target and, where they are known, their labels.
    evaluation : Evaluation
        Of the trained network.
    network : Network
        After training, with BatchNorm statistics of training.
    start : Network
        The same before training.
    batchnorm : {"training", "target"}
        Statistics of the evaluation. With "target", each domain is forwarded with statistics of its own, as in
        training, where a batch of either is normalised by itself.
    """
    own = batchnorm == "target" and can_adapt_batchnorm(network)
    inputs, n_workers = evaluator.inputs, evaluator.n_workers

    def forward(samples: Samples, by: Network) -> Predictions:
        if own and len(samples) > 1:  # one sample has no variance
            by = with_target_statistics(by, samples, inputs, n_workers=n_workers)
        return predict_samples(by, samples, inputs, n_workers=n_workers)

    def before(domain: Domain) -> Tensor:
        return forward(domain.samples.subset(torch.arange(min(BEFORE, len(domain)))), start).features

    target, width = evaluator.domain, evaluation.predictions.features.shape[1]
    index_s, index_t = _choose(source, width), _choose(target, width)
    chosen_s, chosen_t = source.take(index_s), target.take(index_t)
    after_s = forward(chosen_s.samples, network)
    after_t = Predictions(*(values[index_t] for values in evaluation.predictions))
    labels_t = evaluator.labels_for_the_record(index_t)
    return KeptSamples(
        source.class_names,
        "own" if own else "training",
        _kept_domain(chosen_s, len(source), index_s, chosen_s.labels, after_s, before(chosen_s)),
        _kept_domain(chosen_t, len(target), index_t, labels_t, after_t, before(chosen_t)),
    )


def _kept_domain(
    chosen: Domain, total: int, index: Tensor, labels: Tensor | None, after: Predictions, before: Tensor
) -> KeptDomain:
    """What is kept of the chosen samples of a domain."""
    p = after.probabilities.double()
    confidence, prediction = p.max(dim=1)
    entropy: Tensor = torch.special.entr(p).sum(dim=1)
    sheet, side = picture_sheet(chosen.samples)
    return KeptDomain(
        name=chosen.name,
        total=total,
        index=index.int(),
        features=_half(after.features),
        before=_half(before),
        prediction=prediction.int(),
        confidence=confidence.float(),
        entropy=entropy.float(),
        labels=None if labels is None else labels.int(),
        p_true=None if labels is None else p.gather(1, labels.long()[:, None])[:, 0].float(),
        ids=chosen.ids,
        sheet=sheet,
        side=side,
    )


def _half(values: Tensor) -> Tensor:
    limit = torch.finfo(torch.float16).max
    return values.clamp(-limit, limit).half().cpu()


TENSORS = ("index", "features", "before", "prediction", "confidence", "entropy")
OPTIONAL = ("labels", "p_true")


def write_kept(path: str | Path, kept: KeptSamples) -> Path:
    """Write to a safetensors file, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {"class_names": list(kept.class_names), "batchnorm": kept.batchnorm}
    for side, domain in (("source", kept.source), ("target", kept.target)):
        tensors |= {f"{side}.{name}": getattr(domain, name) for name in TENSORS}
        tensors |= {f"{side}.{name}": value for name in OPTIONAL if (value := getattr(domain, name)) is not None}
        if domain.sheet is not None:
            tensors[f"{side}.sheet"] = torch.frombuffer(bytearray(domain.sheet), dtype=torch.uint8)
        # Linux allows file names of any bytes; JSON does not.
        ids = None if domain.ids is None else [name.encode("utf-8", "replace").decode() for name in domain.ids]
        settings[side] = {"name": domain.name, "total": domain.total, "side": domain.side, "ids": ids}
    return write_tensors(path, tensors, settings, content=CONTENT, schema=SCHEMA)


def read_kept(path: str | Path) -> KeptSamples:
    """Read what `write_kept` wrote; an error where the file is damaged."""
    tensors, settings = read_tensors(path, content=CONTENT, schema=SCHEMA)
    try:
        names = tuple(map(str, settings["class_names"]))
        source, target = (_read_domain(side, tensors, settings[side], len(names)) for side in ("source", "target"))
        return KeptSamples(names, str(settings["batchnorm"]), source, target)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from error


def _read_domain(side: str, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], k: int) -> KeptDomain:
    found = {name: tensors[f"{side}.{name}"] for name in TENSORS}
    known = {name: tensors.get(f"{side}.{name}") for name in OPTIONAL}
    n = len(found["index"])
    for name, values in (found | known).items():
        if values is not None and name != "before" and len(values) != n:
            raise ValueError(f"{side} has {len(values)} values of {name} for {n} samples")
    for name in ("prediction", "labels"):
        values = (found | known)[name]
        if values is not None and len(values) and not 0 <= int(values.min()) <= int(values.max()) < k:
            raise ValueError(f"{side} has a class beyond the {k} named ones")
    ids = settings["ids"]
    if ids is not None and len(ids) != n:
        raise ValueError(f"{side} has {len(ids)} names for {n} samples")
    sheet = tensors.get(f"{side}.sheet")
    domain = KeptDomain(
        name=str(settings["name"]),
        total=int(settings["total"]),
        ids=None if ids is None else tuple(map(str, ids)),
        sheet=None if sheet is None else sheet.numpy().tobytes(),
        side=int(settings["side"]),
        **found,
        **known,  # type: ignore[arg-type]
    )
    domain.pictures()  # a sheet that is damaged is noticed here
    return domain
