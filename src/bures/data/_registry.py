"""From what a user writes, a name or a path, to a domain."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bures.arrays import check_flags
from bures.data._decoding import Progress
from bures.data._digits import mnist, usps
from bures.data._domain import Domain
from bures.data._embedded import mnist5k, optdigits
from bures.data._feature_files import read_features
from bures.data._feature_formats import FEATURE_SUFFIXES
from bures.data._folders import BENCHMARKS, benchmark_domain, find_named, image_folder, plain

__all__ = ["feature_file", "from_anywhere", "has_test_part", "known_domains", "load_domain"]

EMBEDDED: dict[str, Callable[..., Domain]] = {"optdigits": optdigits, "mnist5k": mnist5k}
DIGIT_SETS: dict[str, Callable[..., Domain]] = {"mnist": mnist, "usps": usps}


def load_domain(
    spec: str | Path,
    *,
    data_root: str | Path | None = None,
    train: bool = True,
    download: bool = False,
    strict: bool = False,
    size: int | None = None,
    in_memory: bool | None = False,
    progress: Progress | None = None,
    labels: bool = True,
) -> Domain:
    """Load a domain by its name or from a path.

    Parameters
    ----------
    spec : str or path
        One of

        - ``optdigits``, ``mnist5k``: embedded in installed packages;
        - ``mnist``, ``usps``: in ``data_root/digits`` or ``data_root``;
        - ``office10/amazon``, ``office-home/Art`` and so on: in ``data_root/benchmark/domain/class/image``;
        - an image folder, with class folders or flat;
        - a feature file; ``file.npz#amazon`` is one domain of a file that holds several.

        A relative path is looked for in the working folder, then in ``data_root``. Names come before paths: write
        ``./mnist`` for a folder of that name.
    data_root : path, optional
        Folder of the data sets; None is the environment variable ``BURES_DATA``.
    train : bool, optional
        The training part of ``mnist`` and ``usps``, else the test part; other domains have no parts.
    download : bool, optional
        Whether missing files of ``mnist`` and ``usps`` may be downloaded into ``data_root/digits``.
    strict : bool, optional
        Whether bad image files, and digits of features that float32 loses, are an error instead of a warning.
    size : int, optional
        Height and width of the images. None is 256 for image files, and as they are for digits.
    in_memory : bool or None, optional
        Decode image files now and keep them in memory; None does so where they take 4 GiB at most.
    progress : callable, optional
        Called as ``progress(done, total)`` while image files are decoded.
    labels : bool, optional
        False leaves labels alone: the domain is unlabelled, and a feature file may lack some.

    Returns
    -------
    Domain
        The domain, with labels where they are known.

    Examples
    --------
    >>> from bures.data import load_domain
    >>> len(load_domain("optdigits"))
    1797
    """
    check_flags(train=train, download=download, strict=strict, labels=labels)
    root = _root(data_root)
    text, by_path = os.fspath(spec), _by_path(spec)
    if not by_path and (name := find_named(text, EMBEDDED)):
        return _shown(EMBEDDED[name](size=size), labels)
    if not by_path and (name := find_named(text, DIGIT_SETS)):
        return _shown(DIGIT_SETS[name](_digits_root(text, root), train, download, size=size), labels)

    read = {"strict": strict, "size": 256 if size is None else size, "in_memory": in_memory, "progress": progress}
    benchmark, _, domain = text.partition("/")
    is_benchmark = not by_path and _is_benchmark(text)
    if is_benchmark and root is not None:
        return _shown(benchmark_domain(benchmark, domain, root, **read), labels)  # type: ignore[arg-type]

    path, part = _path_and_part(text)
    for place in _places(path, root):
        if place.is_dir():
            return _shown(image_folder(place, **read), labels)  # type: ignore[arg-type]
        if place.is_file():
            if not _is_feature_file(str(place)):
                raise ValueError(
                    f"spec={text!r} is a file that ends in {place.suffix!r}; accepted are folders of images (an image "
                    f"by itself goes into a folder) and feature files ({', '.join(FEATURE_SUFFIXES)})"
                )
            return read_features(place, domain=part or None, labels=labels, strict=strict)
    if is_benchmark:
        raise _no_root(text)
    raise FileNotFoundError(_unknown(text, path, root))


def from_anywhere(spec: str, data_root: str | Path | None = None) -> str:
    """What means the same domain from any working folder: a path as an absolute one, a name as it is.

    What is not there stays as it is too, for :func:`load_domain` to refuse.
    """
    root = _root(data_root)
    named = find_named(spec, (*EMBEDDED, *DIGIT_SETS)) or (root is not None and _is_benchmark(spec))
    if named and not _by_path(spec):
        return spec
    path, part = _path_and_part(spec)
    place = _place(path, root)
    if place is None:
        return spec
    place = place.absolute()
    found = f"{place}#{part}" if part else str(place)
    return found if _path_and_part(found) == (str(place), part) else spec  # a folder may have a #


def feature_file(spec: str | Path, data_root: str | Path | None = None) -> Path | None:
    """The file that :func:`load_domain` reads for a path; None where that is a folder, a name or not there."""
    path, _ = _path_and_part(os.fspath(spec))
    place = _place(path, _root(data_root))
    return place if place is not None and place.is_file() else None


def has_test_part(spec: str) -> bool:
    """Whether a name stands for a domain in two parts, on whose test part it is evaluated."""
    return find_named(spec, DIGIT_SETS) is not None


def known_domains() -> list[str]:
    """Names that :func:`load_domain` knows."""
    benchmarks = [f"{key}/{domain}" for key, known in BENCHMARKS.items() for domain in known.domains]
    return [*EMBEDDED, *DIGIT_SETS, *benchmarks]


def _shown(domain: Domain, labels: bool) -> Domain:
    return domain if labels else replace(domain, labels=None)


def _root(data_root: str | Path | None) -> Path | None:
    """The folder of the data sets: the one that is given, or that of the environment."""
    value = data_root if data_root is not None else os.environ.get("BURES_DATA") or None
    return None if value is None else Path(value)


def _digits_root(name: str, root: Path | None) -> Path:
    if root is None:
        raise _no_root(name)
    folder = {"mnist": "MNIST", "usps": "USPS"}[plain(name)]
    here = (root / folder).is_dir() and not (root / "digits" / folder).is_dir()
    return root if here else root / "digits"


def _no_root(name: str) -> ValueError:
    return ValueError(
        f"spec={name!r} is a data set in files and data_root is not given; "
        "pass data_root= or set the environment variable BURES_DATA to the folder of the data sets"
    )


def _by_path(spec: str | Path) -> bool:
    text = os.fspath(spec)
    return isinstance(spec, Path) or os.path.isabs(text) or text.startswith((".", "~"))


def _is_benchmark(text: str) -> bool:
    benchmark, _, domain = text.partition("/")
    return "/" not in domain and not _is_feature_file(text) and find_named(benchmark, BENCHMARKS) is not None


def _path_and_part(text: str) -> tuple[str, str]:
    """A path, and the domain of a feature file that holds several; folders may have a # in their names."""
    for sign in re.finditer("#", text):
        if _has_feature_suffix(text[: sign.start()]):
            return text[: sign.start()], text[sign.end() :]
    return text, ""


def _is_feature_file(text: str) -> bool:
    return _has_feature_suffix(_path_and_part(text)[0])


def _has_feature_suffix(path: str) -> bool:
    return Path(path).suffix.lower() in FEATURE_SUFFIXES


def _places(path: str, root: Path | None) -> list[Path]:
    own = Path(os.path.expanduser(path))
    return [own] if root is None or own.is_absolute() else [own, root / own]


def _place(path: str, root: Path | None) -> Path | None:
    return next((place for place in _places(path, root) if place.exists()), None)


def _unknown(text: str, path: str, root: Path | None) -> str:
    places = " or ".join(str(place.absolute()) for place in _places(path, root))
    return (
        f"spec={text!r} is neither a known domain nor a path (looked for {places}); known are "
        f"{', '.join(known_domains())}; accepted are also image folders and feature files "
        f"({', '.join(FEATURE_SUFFIXES)})"
    )
