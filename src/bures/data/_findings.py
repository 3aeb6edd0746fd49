"""What is worth knowing of two domains before hours are spent on them, rule by rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bures.data._summary import DomainSummary, Pictures
from bures.wording import listed

__all__ = ["IMBALANCE", "LEVELS", "Finding", "Level", "find_all", "imbalance", "shared"]

Level = Literal["ok", "note", "warning", "error"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")

IMBALANCE = 3.0  # largest class over smallest, from which class-balanced sampling is advised
FREQUENCIES = 0.15  # total variation between the class frequencies of the domains
SCALES = 3.0  # ratio of the scales of two domains' features
DISPARITY = 100.0  # largest deviation of a column over the median one
BRIGHTNESS = 64.0  # a quarter of the range of a pixel
PAIRS = 3  # how many equal samples a message names


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: how it stands and, where something can be done, what.

    Parameters
    ----------
    level : {"ok", "note", "warning", "error"}
        "error" is what keeps training from running or from meaning anything.
    topic : str
        What was looked at, in one word.
    text : str
        What was found.
    remedy : str, optional
        What to do about it.

    Examples
    --------
    >>> from bures.data import Finding
    >>> Finding("error", "classes", "the domains share no class", "give both the same class names").level
    'error'
    """

    level: Level
    topic: str
    text: str
    remedy: str = ""


def find_all(source: DomainSummary, target: DomainSummary) -> list[Finding]:
    """Apply every rule; those that compare samples only where the samples are of one kind."""
    found = [*_shapes(source, target), *_classes(source, target), *_balance(source, target)]
    if source.pictures is not None and target.pictures is not None:
        found += _duplicates(source, target)
        found += _pictures(source, target, source.pictures, target.pictures)
    elif source.shape == target.shape:
        found += _duplicates(source, target)
        found += _features(source, target)
    return found


def imbalance(counts: Mapping[str, int]) -> float:
    """Samples of the largest class over those of the smallest."""
    return max(counts.values()) / min(counts.values())


def _shapes(source: DomainSummary, target: DomainSummary) -> Iterable[Finding]:
    kinds = ["images" if domain.pictures is not None else "feature vectors" for domain in (source, target)]
    if kinds[0] != kinds[1]:
        remedy = "turn the images into features with the same network: bures features extract"
        yield Finding("error", "samples", f"the source holds {kinds[0]}, the target {kinds[1]}", remedy)
    elif source.pictures is None and source.shape != target.shape:
        text = f"the source has {source.shape[0]} features, the target {target.shape[0]}"
        yield Finding("error", "samples", text, "extract both with the same network")
    for side, domain in (("source", source), ("target", target)):
        if domain.n == 1:
            text = f"the {side} has one sample, which has no distribution to compare"
            yield Finding("error", "samples", text, "two are the least, a few for each class are useful")


def _classes(source: DomainSummary, target: DomainSummary) -> Iterable[Finding]:
    if source.counts is None:
        remedy = "sort the images into folder/class/image, or add the labels to the feature file"
        yield Finding("error", "classes", "the source has no labels, which training needs", remedy)
    elif len(source.classes) == 1:
        text = f"the source has one class, {source.classes[0]!r}"
        yield Finding("error", "classes", text, "a classifier needs at least two")
    if target.counts is None:
        text = "the target has no labels; training needs none, but accuracy there cannot be measured"
        yield Finding("note", "labels", text)
    else:
        yield Finding("ok", "labels", "the target has labels; they are counted here and hidden from training")
    if not source.classes or not target.classes:
        return
    missing, extra = _only_in(source, target), _only_in(target, source)
    if len(missing) == len(source.classes):
        text = f"the domains share no class: source {listed(missing)}; target {listed(extra)}"
        yield Finding("error", "classes", text, "give the classes the same names in both domains")
    elif extra:
        text = f"target classes that are not in the source, {len(extra)} of {len(target.classes)}: {listed(extra)}"
        remedy = "these samples can only be classified wrong: leave them out, or add such classes to the source"
        yield Finding("error", "classes", text, remedy)
    elif missing:
        text = f"source classes that are not in the target, {len(missing)} of {len(source.classes)}: {listed(missing)}"
        remedy = "allow it with --partial, or leave these classes out of the source"
        yield Finding("warning", "classes", text, remedy)
    else:
        yield Finding("ok", "classes", f"both domains have the same {len(source.classes)} classes")


def _only_in(one: DomainSummary, other: DomainSummary) -> list[str]:
    return [name for name in one.classes if name not in set(other.classes)]


def _balance(source: DomainSummary, target: DomainSummary) -> Iterable[Finding]:
    for side, domain in (("source", source), ("target", target)):
        if domain.counts is None or len(domain.counts) < 2:
            continue
        single = [name for name, count in domain.counts.items() if count == 1]
        if single:
            text = f"classes with one sample in the {side}: {listed(single)}"
            yield Finding("warning", "balance", text, "add samples, or leave these classes out of both domains")
        ratio = imbalance(domain.counts)
        smallest = min(domain.counts, key=domain.counts.__getitem__)
        largest = max(domain.counts, key=domain.counts.__getitem__)
        text = (
            f"the largest {side} class, {largest!r} ({domain.counts[largest]}), has {ratio:.1f} times the samples of "
            f"the smallest, {smallest!r} ({domain.counts[smallest]})"
        )
        uneven = side == "source" and ratio > IMBALANCE
        remedy = "draw the source with equal shares of the classes: --class-balanced" if uneven else ""
        yield Finding("note" if ratio > IMBALANCE else "ok", "balance", text, remedy)
    if source.counts and target.counts and set(source.counts) == set(target.counts):
        change = sum(abs(source.counts[c] / source.n - target.counts[c] / target.n) for c in source.counts) / 2
        if change > FREQUENCIES:
            text = f"the class frequencies differ: {change:.0%} of the target would have to change class to match"
            yield Finding("note", "balance", text, "compare distances with --prior uniform, which removes this effect")


def shared(source: DomainSummary, target: DomainSummary) -> list[tuple[int, int]]:
    """Numbers of equal samples: the first in the source, and each in the target."""
    first = {digest: number for number, digest in reversed(list(enumerate(source.digests))) if digest is not None}
    return [(first[digest], number) for number, digest in enumerate(target.digests) if digest in first]


def _duplicates(source: DomainSummary, target: DomainSummary) -> Iterable[Finding]:
    across = shared(source, target)
    if across:
        pairs = listed((f"{source.sample(a)} = {target.sample(b)}" for a, b in across), PAIRS)
        text = f"target samples that are in the source as well, {len(across)} of {target.n}: {pairs}"
        yield Finding("warning", "duplicates", text, "remove them from one domain: accuracy there would be memory")
    else:
        yield Finding("ok", "duplicates", "no sample is in both domains")
    for side, domain in (("source", source), ("target", target)):
        repeated, labels = domain.repeated(), domain.labels
        if repeated:
            extra = sum(len(group) - 1 for group in repeated)
            text = f"copies of samples within the {side}, {extra} of {domain.n}: {_groups(domain, repeated)}"
            yield Finding("note", "duplicates", text, "remove the copies, unless they are meant as weights")
        split = [group for group in repeated if labels and len({labels[number] for number in group}) > 1]
        if split:
            text = f"samples under several classes in the {side}, {len(split)} in number: {_groups(domain, split)}"
            yield Finding("warning", "duplicates", text, "correct the labels")


def _groups(domain: DomainSummary, groups: Iterable[Sequence[int]]) -> str:
    return listed((" = ".join(domain.sample(number) for number in group[:PAIRS]) for group in groups), PAIRS)


def _pictures(source: DomainSummary, target: DomainSummary, ps: Pictures, pt: Pictures) -> Iterable[Finding]:
    for side, domain, pictures in (("source", source, ps), ("target", target, pt)):
        if pictures.unreadable:
            files = listed(f"{file} ({reason})" for file, reason in pictures.unreadable)
            text = f"files that cannot be decoded in the {side}, {len(pictures.unreadable)} of {domain.n}: {files}"
            yield Finding("warning", "images", text, "replace or remove these files")
        if pictures.n_blank:
            text = f"images with one value throughout in the {side}: {pictures.n_blank} of {domain.n}"
            yield Finding("warning", "images", text, "remove them, unless blank images are to be expected")
        if pictures.n_slim > domain.n / 10:
            text = f"images with one side more than twice the other in the {side}: {pictures.n_slim} of {domain.n}"
            remedy = "they are warped to squares: crop or pad them where proportions matter"
            yield Finding("note", "images", text, remedy)
        if pictures.n_transparent:
            text = f"images with transparency, which is dropped, in the {side}: {pictures.n_transparent} of {domain.n}"
            yield Finding("note", "images", text, "paste them on a background where what is under it must not show")
        if domain.maximum <= 1:
            text = f"the pixels of the {side} do not exceed {domain.maximum:g}, of 255"
            yield Finding("warning", "values", text, "they seem to be scaled to 0 to 1: multiply by 255")
    grey = [pictures.n_grey / sum(pictures.modes.values()) for pictures in (ps, pt)]
    if abs(grey[0] - grey[1]) > 0.5:
        text = f"{grey[0]:.0%} of the source and {grey[1]:.0%} of the target are grey: colour alone tells them apart"
        yield Finding("note", "images", text, "convert both to grey if colour means nothing")
    numbers = f"the mean pixel is {source.mean:.0f} in the source and {target.mean:.0f} in the target, of 255"
    if abs(source.mean - target.mean) > BRIGHTNESS:
        yield Finding("note", "values", numbers, "look whether one is dark on light and the other light on dark")
    else:
        yield Finding("ok", "values", numbers)


def _features(source: DomainSummary, target: DomainSummary) -> Iterable[Finding]:
    cs, ct = source.columns, target.columns
    assert cs is not None
    assert ct is not None
    d = source.shape[0]
    both, one = cs.constant & ct.constant, cs.constant ^ ct.constant
    if both.any():
        zeros = int((both & cs.zero & ct.zero).sum())
        text = f"columns that are constant in both domains: {int(both.sum())} of {d}, zero {zeros}"
        yield Finding("note", "values", text, "they carry nothing and can be removed")
    if one.any():
        text = f"columns that vary in one domain and are constant in the other: {int(one.sum())} of {d}"
        yield Finding("warning", "values", text, "look whether they are missing there; else leave them out")
    scales = cs.scale, ct.scale
    numbers = f"deviation {scales[0]:.3g} in the source, {scales[1]:.3g} in the target"
    if min(scales) == 0 or max(scales) / min(scales) > SCALES:
        remedy = "normalise both domains in the same way, for example rows to length one"
        yield Finding("warning", "values", f"the scales of the features differ: {numbers}", remedy)
    else:
        yield Finding("ok", "values", f"the scales of the features are alike: {numbers}")
    disparity = max(cs.disparity, ct.disparity)
    if disparity > DISPARITY:
        text = f"one column varies {disparity:.0f} times as much as the median column and decides every distance"
        yield Finding("warning", "values", text, "divide each column by its deviation in the source")
    fewer = [f"{side} ({domain.n})" for side, domain in (("source", source), ("target", target)) if domain.n < d]
    if fewer:
        text = f"fewer samples than the {d} features, so that covariances are singular: {' and '.join(fewer)}"
        yield Finding("note", "samples", text, "the kernel distances allow for it; fewer features would be steadier")
