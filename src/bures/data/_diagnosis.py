"""A look at two domains before hours are spent on them: what stands in the way, and settings to start with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from bures.arrays import check_flags
from bures.data._columns import align_columns
from bures.data._decoding import Progress
from bures.data._domain import Domain
from bures.data._findings import IMBALANCE, LEVELS, Finding, Level, find_all, imbalance, shared
from bures.data._summary import DomainSummary, summarise

__all__ = ["LISTED_CLASSES", "SMALL_IMAGE", "Diagnosis", "describe_domain", "diagnose", "show_count"]

SMALL_IMAGE = 32  # pixels; up to here LeNet sees enough, and a network for photographs would see a blur
PHOTOGRAPH = 224
# Batch of each domain: as many as 2 K where they fit, from the first number to the second.
BATCHES = {"lenet": (256, 1024), "identity": (256, 1024), "resnet50": (32, 64)}
LISTED_CLASSES = 70  # more classes than these are not listed one by one


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` found: the two domains, the findings, and settings to start with.

    Attributes
    ----------
    source, target : DomainSummary
        Counts, sizes and ranges of each domain.
    findings : tuple of Finding
        What was looked at, each with a level and, where something can be done, a remedy.
    settings : dict
        Suggested options of ``bures adapt``; empty where the domains cannot be used together.

    Examples
    --------
    >>> from bures.data import diagnose, optdigits
    >>> digits = optdigits()
    >>> diagnosis = diagnose(digits.take(range(900)), digits.take(range(900, 1797)))
    >>> diagnosis.level
    'ok'
    >>> diagnosis.settings["network"]
    'lenet'
    """

    source: DomainSummary
    target: DomainSummary
    findings: tuple[Finding, ...]
    settings: Mapping[str, str | int | bool]

    @property
    def level(self) -> Level:
        """The gravest level of a finding."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")

    def count(self, level: Level) -> int:
        """Number of findings of one level."""
        return sum(finding.level == level for finding in self.findings)

    def options(self) -> list[str]:
        """The suggested settings as options of ``bures adapt``."""
        words = []
        for name, value in self.settings.items():
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        return words

    def class_counts(self) -> list[tuple[str, int | None, int | None]]:
        """Class, samples in the source and in the target; None where a domain has no labels."""
        names = dict.fromkeys([*self.source.classes, *self.target.classes])
        return [(name, _count(self.source, name), _count(self.target, name)) for name in names]

    def verdict(self) -> str:
        """The findings in one line."""
        found = [f"{n} {level}{'s' if n > 1 else ''}" for level in reversed(LEVELS[1:]) if (n := self.count(level))]
        return ", ".join(found) if found else "nothing stands in the way"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "level": self.level,
            "source": self.source.to_dict(),
            "target": self.target.to_dict(),
            "duplicates_across": len(shared(self.source, self.target)),
            "findings": [asdict(finding) for finding in self.findings],
            "settings": dict(self.settings),
        }

    def __str__(self) -> str:
        lines = [f"{side}  {describe_domain(domain)}" for side, domain in self.sides()]
        table = self.class_counts()
        if table and len(table) <= LISTED_CLASSES:
            width = max(len("class"), *(len(name) for name, *_ in table))
            lines += ["", f"{'class':<{width}}  {'source':>7}  {'target':>7}"]
            lines += [f"{name:<{width}}  {show_count(s):>7}  {show_count(t):>7}" for name, s, t in table]
        lines.append("")
        for finding in self.findings:
            lines.append(f"{finding.level:<7}  {finding.topic:<10}  {finding.text}")
            if finding.remedy:
                lines.append(f"{'':<19}  -> {finding.remedy}")
        if self.settings:
            lines += ["", f"suggested  {' '.join(self.options())}"]
        return "\n".join([*lines, "", f"verdict  {self.verdict()}"])

    def sides(self) -> tuple[tuple[str, DomainSummary], tuple[str, DomainSummary]]:
        """Both domains with what they are."""
        return ("source", self.source), ("target", self.target)


def diagnose(
    source: Domain,
    target: Domain,
    *,
    loading: Sequence[str] = (),
    strict: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Look at two domains before a network is trained on them.

    Classes, balance, duplicates within and across the domains, sizes and kinds of images, values and scales of
    features. Labels of the target are counted where there are any; this is a diagnosis, and training never sees them.

    Parameters
    ----------
    source, target : Domain
        The domains; of image files every one is decoded.
    loading : sequence of str, optional
        What was said while the domains were loaded, such as a warning of files that were left out. Each becomes a
        finding.
    strict : bool, optional
        Whether files that cannot be decoded, and what was said while loading, are errors instead of warnings.
    progress : callable, optional
        Called as ``progress(done, total)`` while image files are decoded.

    Returns
    -------
    Diagnosis
        Findings and settings; ``print`` shows them.

    Examples
    --------
    >>> import torch
    >>> from bures.data import Domain, TensorSamples, diagnose
    >>> x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    >>> source = Domain("here", TensorSamples(x), ["cat", "dog"], labels=[0, 0, 0, 1, 1, 1])
    >>> target = Domain("there", TensorSamples(x + 1), ["cat", "cow"], labels=[0, 0, 0, 1, 1, 1])
    >>> [finding.text for finding in diagnose(source, target).findings if finding.level == "error"]
    ['target classes that are not in the source, 1 of 2: cow']
    """
    check_flags(strict=strict)
    found = [Finding("warning", "loading", message, "complete or clean the folder") for message in loading]
    try:
        aligned = align_columns(source, target)
    except ValueError as error:
        text, _, remedy = str(error).partition("; ")
        found.append(Finding("error", "columns", text, remedy))
    else:
        if aligned is not target:
            text = "the columns of the target are in another order than those of the source"
            found.append(Finding("note", "columns", text, "nothing is to be done: they are matched by name"))
        target = aligned
    seen_s, seen_t = summarise(source, progress), summarise(target, progress)
    found += find_all(seen_s, seen_t)
    settings = suggest(seen_s, seen_t) if _usable(found) else {}
    if settings:
        found += _batch(settings, seen_s, seen_t)
    if strict:
        found = [_as_error(finding) if _is_of_files(finding) else finding for finding in found]
    return Diagnosis(seen_s, seen_t, tuple(found), MappingProxyType(settings))


def suggest(source: DomainSummary, target: DomainSummary) -> dict[str, str | int | bool]:
    """Settings to start with."""
    settings: dict[str, str | int | bool] = {"network": "identity"}
    if source.pictures is not None and target.pictures is not None:
        side = max(source.pictures.side, target.pictures.side)
        small = side <= SMALL_IMAGE
        settings = {"network": "lenet"} if small else {"network": "resnet50", "weights": "default"}
        settings["image_size"] = side if small else PHOTOGRAPH
    least, most = BATCHES[str(settings["network"])]
    enough = 1 << (2 * len(source.classes) - 1).bit_length()  # a power of two of at least twice the classes
    settings["batch_size"] = min(max(least, min(enough, most)), source.n, target.n)
    if source.counts and imbalance(source.counts) > IMBALANCE:
        settings["class_balanced"] = True
    if target.counts and set(target.counts) < set(source.classes):
        settings["partial"] = True
    return settings


def _batch(settings: Mapping[str, str | int | bool], source: DomainSummary, target: DomainSummary) -> list[Finding]:
    """Whether a batch of the suggested size holds every class, and images are not blown up."""
    found = []
    size, k = int(settings["batch_size"]), len(source.classes)
    if size < 2 * k:
        text = f"a batch of {size} holds {size / k:.1f} samples of each of {k} classes: many are absent from it"
        remedy = "take a larger batch where memory allows, or --class-balanced; terms by class are noisy otherwise"
        found.append(Finding("warning", "batch", text, remedy))
    sides = [domain.pictures.side for domain in (source, target) if domain.pictures is not None]
    if settings["network"] == "resnet50" and min(sides) < PHOTOGRAPH / 2:
        text = f"images of {min(sides)} pixels are enlarged to {PHOTOGRAPH} for a network made for photographs"
        found.append(Finding("note", "images", text, "a smaller network on smaller images may do as well"))
    return found


def _usable(findings: Sequence[Finding]) -> bool:
    return all(finding.level != "error" for finding in findings)


def _is_of_files(finding: Finding) -> bool:
    return finding.topic == "loading" or finding.text.startswith("files that cannot be decoded")


def _as_error(finding: Finding) -> Finding:
    return Finding("error", finding.topic, finding.text, finding.remedy)


def describe_domain(domain: DomainSummary) -> str:
    """One line on a domain."""
    k = len(domain.classes)
    classes = "no labels" if domain.counts is None else f"{k} class{'es' if k != 1 else ''}"
    if domain.pictures is None:
        values = f"values {domain.minimum:.3g} to {domain.maximum:.3g}, mean {domain.mean:.3g}, std {domain.std:.3g}"
        return f"{domain.name}: {domain.n} samples of {domain.shape[0]} features, {classes}; {values}"
    pictures = domain.pictures
    modes = ", ".join(f"{count} {mode}" for mode, count in pictures.modes.items())
    return f"{domain.name}: {domain.n} images, {classes}; {_sizes(*pictures.widths, *pictures.heights)} pixels; {modes}"


def _sizes(w_min: int, w_median: int, w_max: int, h_min: int, h_median: int, h_max: int) -> str:
    if (w_min, h_min) == (w_max, h_max):
        return f"{w_min} x {h_min}"
    return f"{w_min} to {w_max} x {h_min} to {h_max}, median {w_median} x {h_median}"


def _count(domain: DomainSummary, name: str) -> int | None:
    return None if domain.counts is None else domain.counts.get(name, 0)


def show_count(count: int | None) -> str:
    """A number of samples, or a sign that it is not known."""
    return "?" if count is None else str(count)
