"""Domains in image folders: ``class/image`` or flat, the user's own or one of the known benchmarks."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from bures.arrays import check_flags
from bures.data._decoding import Progress, check_images, report_bad
from bures.data._domain import Domain, composed
from bures.data._samples import ImageFiles, Samples, fits_in_memory
from bures.wording import listed

__all__ = ["BENCHMARKS", "Benchmark", "benchmark_domain", "find_named", "image_folder", "plain"]

IMAGE_SUFFIXES = frozenset(
    [".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"]
)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Benchmark:
    """A known set of domains: what it holds, and where it can be got."""

    title: str
    domains: Mapping[str, int]  # number of images by domain
    n_classes: int
    source: str


BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        "office10": Benchmark(
            "Office-Caltech10",
            MappingProxyType({"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}),
            10,
            "the project page of Gong et al., Geodesic Flow Kernel for Unsupervised Domain Adaptation, CVPR 2012",
        ),
        "office31": Benchmark(
            "Office-31",
            MappingProxyType({"amazon": 2817, "dslr": 498, "webcam": 795}),
            31,
            "the project page of Saenko et al., Adapting Visual Category Models to New Domains, ECCV 2010",
        ),
        "office-home": Benchmark(
            "Office-Home",
            MappingProxyType({"Art": 2427, "Clipart": 4365, "Product": 4439, "Real_World": 4357}),
            65,
            "hemanthdv.github.io/officehome-dataset (Venkateswara et al., Deep Hashing Network, CVPR 2017)",
        ),
        "imageclef-da": Benchmark(
            "ImageCLEF-DA",
            MappingProxyType({"c": 600, "i": 600, "p": 600}),
            12,
            "the ImageCLEF 2014 domain adaptation challenge, as packed with the code of Long et al., Joint Adaptation "
            "Networks, ICML 2017; its lists of files and labels must be turned into class folders",
        ),
    }
)


def image_folder(
    path: str | Path,
    class_names: Sequence[str] | None = None,
    *,
    name: str | None = None,
    size: int = 256,
    strict: bool = False,
    in_memory: bool | None = False,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Domain:
    """Read a folder of images as a domain.

    A folder with one folder for each class is a labelled domain; a flat folder of images is an unlabelled one. Hidden
    files and files that are no images by their suffix are ignored. Samples are in the order of their names; those
    behind links to folders, which are followed, come last in their class.

    Parameters
    ----------
    path : path
        The folder.
    class_names : sequence of str, optional
        The classes and their order. None takes the names of the class folders in alphabetical order. A class may be
        absent from the folder; a class folder must not be absent from the names.
    name : str, optional
        Name of the domain; None is the name of the folder.
    size : int, optional
        Height and width the images are warped to.
    strict : bool, optional
        Whether a file that cannot be decoded is an error. Otherwise such files are left out with a warning that names
        the first and counts all.
    in_memory : bool or None, optional
        Decode the images now and keep them; each file is read once. Otherwise each is decoded once here, to find the
        bad ones, and again whenever it is asked for. None keeps them where they take 4 GiB at most.
    n_threads : int, optional
        Number of decoding threads; None is one for each core, at most 16.
    progress : callable, optional
        Called as ``progress(done, total)`` while the images are decoded.

    Returns
    -------
    Domain
        Images in uint8 (n, 3, size, size); ``ids`` are the paths below the folder.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> from bures.data import image_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for animal in ("cat", "dog"):
    ...         pathlib.Path(folder, animal).mkdir()
    ...         Image.new("RGB", (20, 10)).save(pathlib.Path(folder, animal, "1.png"))
    ...     print(image_folder(folder, name="pets", size=16))
    Domain('pets', 2 samples of shape (3, 16, 16), 2 classes: cat 1, dog 1)
    """
    check_flags(strict=strict)
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"path={str(path)!r} is not a folder")
    files, classes = _list_images(folder)
    names = tuple(map(composed, class_names)) if class_names is not None else tuple(sorted(set(classes)))
    if unknown := sorted(set(classes) - set(names)):
        raise ValueError(
            f"path={str(path)!r} has the class folder {unknown[0]!r}, which is not among class_names "
            f"({len(unknown)} such folders); accepted are {', '.join(names)}"
        )
    samples, kept = _read(ImageFiles(files, size), strict, in_memory, n_threads, progress)
    if not kept:
        raise ValueError(f"path={str(path)!r}: none of the {len(files)} image files can be decoded")
    number = {name: label for label, name in enumerate(names)}
    labels = torch.tensor([number[classes[row]] for row in kept]) if classes else None
    ids = tuple(files[row].relative_to(folder).as_posix() for row in kept)
    return Domain(name or _text(folder.resolve().name), samples, names, labels, ids)


def _list_images(folder: Path) -> tuple[list[Path], list[str]]:
    """Image files and the class of each; no classes for a flat folder."""
    flat = [entry for entry in _visible(folder) if _is_file(entry) and _is_image(entry)]
    by_class: dict[str, list[Path]] = {}
    for entry in filter(Path.is_dir, _visible(folder)):
        name = composed(_text(entry.name))
        if name in by_class:
            raise ValueError(f"path={str(folder)!r} has two class folders that read {name!r}; join them, or rename one")
        by_class[name] = list(_images_below(entry))
    filled = [name for name, files in by_class.items() if files]
    if flat and filled:
        raise ValueError(
            f"path={str(folder)!r} holds {len(flat)} images of its own (first: {flat[0].name}) beside class folders "
            f"(first: {filled[0]}); accepted is either folder/class/image or folder/image"
        )
    if not flat and not filled:
        raise ValueError(
            f"path={str(folder)!r} holds no images; accepted are folder/class/image or folder/image with one of the "
            f"suffixes {', '.join(sorted(IMAGE_SUFFIXES))}"
        )
    if flat:
        return flat, []
    if empty := sorted(set(by_class) - set(filled)):
        raise ValueError(
            f"path={str(folder)!r} has no images in the {listed(map(repr, empty), noun='class folder')}; "
            "remove or fill what is empty"
        )
    pairs = [(file, name) for name, files in by_class.items() for file in files]
    return [file for file, _ in pairs], [name for _, name in pairs]


def _visible(folder: Path) -> list[Path]:
    return sorted((entry for entry in folder.iterdir() if not _hidden(entry.name)), key=lambda entry: entry.name)


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _text(name: str) -> str:
    """A name in one line that UTF-8 can express; Linux allows file names of any bytes, for which terminals break."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], name.encode("utf-8", "backslashreplace").decode("utf-8"))


def _is_file(entry: Path) -> bool:
    """Whether it is a file, or a link to nothing, which is reported with the files that cannot be decoded."""
    return entry.is_file() or (entry.is_symlink() and not entry.exists())


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def _images_below(folder: Path) -> Iterator[Path]:
    """Images in a folder and the folders below it, then those behind links to folders; no folder is read twice.

    A link to a folder above, in which the images of other classes lie too, is a cycle and not followed.
    """
    parent = folder.parent.resolve()  # the folder may be a link itself
    above = {parent, *parent.parents, *folder.resolve().parents}
    starts, seen = [folder], set[Path]()
    for start in starts:  # links that are found are added
        for here, folders, files in os.walk(start):
            if (real := Path(here).resolve()) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not _hidden(name))
            links = (Path(here, name) for name in folders if os.path.islink(os.path.join(here, name)))
            starts.extend(link for link in links if link.resolve() not in above)
            yield from (Path(here, name) for name in sorted(files) if not _hidden(name) and _is_image(Path(name)))


def _read(
    images: ImageFiles, strict: bool, in_memory: bool | None, n_threads: int | None, progress: Progress | None
) -> tuple[Samples, list[int]]:
    """The samples that decode, and their numbers."""
    samples: Samples = images
    if fits_in_memory(images) if in_memory is None else in_memory:
        samples, unreadable = images.decode_readable(n_threads, progress)
        bad = [(Path(images.paths[number]), reason) for number, reason in unreadable]
        dropped = {number for number, _ in unreadable}
    else:
        _, bad = check_images(images.paths, n_threads=n_threads, progress=progress)
        missing = {str(path) for path, _ in bad}
        dropped = {number for number, path in enumerate(images.paths) if path in missing}
        samples = images if not bad else images.subset(_kept(len(images), dropped))
    report_bad(bad, len(images), strict=strict)
    return samples, _kept(len(images), dropped).tolist()


def _kept(n: int, dropped: set[int]) -> torch.Tensor:
    return torch.tensor([number for number in range(n) if number not in dropped], dtype=torch.int64)


def benchmark_domain(
    benchmark: str,
    domain: str,
    root: str | Path,
    *,
    size: int = 256,
    strict: bool = False,
    in_memory: bool | None = False,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Domain:
    """Read a domain of a known benchmark from ``root/benchmark/domain/class/image`` and check that it is complete.

    Parameters
    ----------
    benchmark : str
        ``office10``, ``office31``, ``office-home`` or ``imageclef-da``; case, dashes and underscores do not matter.
    domain : str
        Name of the domain, ``amazon`` for one.
    root : path
        Folder that holds the folder of the benchmark.
    size : int, optional
        Height and width the images are warped to.
    strict : bool, optional
        Whether bad image files and a wrong number of files are errors instead of warnings.
    in_memory : bool, optional
        Decode the images now and keep them.
    n_threads : int, optional
        Number of decoding threads.
    progress : callable, optional
        Called as ``progress(done, total)``.

    Returns
    -------
    Domain
        As of :func:`image_folder`.

    Examples
    --------
    >>> from bures.data import benchmark_domain
    >>> benchmark_domain("office10", "amazon", "data")
    Traceback (most recent call last):
    FileNotFoundError: Office-Caltech10 is not in data: ...
    """
    check_flags(strict=strict)
    key = find_named(benchmark, BENCHMARKS)
    if key is None:
        raise ValueError(f"benchmark={benchmark!r} is unknown; accepted are {', '.join(BENCHMARKS)}")
    known = BENCHMARKS[key]
    name = find_named(domain, known.domains)
    if name is None:
        raise ValueError(f"domain={domain!r} is not in {known.title}; accepted are {', '.join(known.domains)}")
    folder = _benchmark_folder(Path(root), key, name)
    files, classes = _list_images(folder)
    if len(set(classes)) != known.n_classes:
        raise ValueError(f"{folder} has {len(set(classes))} class folders; {known.title} has {known.n_classes}")
    if len(files) != known.domains[name]:
        message = f"{folder} has {len(files)} image files; {name} of {known.title} has {known.domains[name]}"
        if strict:
            raise ValueError(message)
        warnings.warn(message, UserWarning, stacklevel=2)
    return image_folder(
        folder, name=name, size=size, strict=strict, in_memory=in_memory, n_threads=n_threads, progress=progress
    )


def _benchmark_folder(root: Path, key: str, name: str) -> Path:
    """The folder of a domain, or an error that says what is expected where and how to get it."""
    known = BENCHMARKS[key]
    home = _folder_named(root, key)
    folder = None if home is None else _folder_named(home, name)
    if folder is None:
        packed = [] if home is None else sorted(file.name for file in home.iterdir() if _is_archive(file))
        hint = f" ({', '.join(packed)} lies in {home}: unpack it there)" if packed else ""
        raise FileNotFoundError(
            f"{known.title} is not in {root}: expected are {root / key / name}/<class>/<image>, with the domains "
            f"{', '.join(known.domains)} and {known.n_classes} classes{hint}; it can be got from {known.source}"
        )
    inside = [entry.name for entry in _visible(folder) if entry.is_dir()]
    return folder / "images" if inside == ["images"] else folder  # Office-31 is packed with this folder in between


def _is_archive(file: Path) -> bool:
    return file.suffix.lower() in {".tar", ".zip", ".gz", ".tgz"}


def _folder_named(parent: Path, name: str) -> Path | None:
    if not parent.is_dir():
        return None
    folders = {entry.name: entry for entry in _visible(parent) if entry.is_dir()}
    found = name if name in folders else find_named(name, folders)
    return None if found is None else folders[found]


def find_named(name: str, choices: Iterable[str]) -> str | None:
    """The choice that equals a name but for case, blanks, dashes and underscores."""
    return next((choice for choice in choices if plain(choice) == plain(name)), None)


def plain(name: str) -> str:
    """A name without case, blanks, dashes and underscores."""
    return re.sub(r"[\s_-]+", "", name).lower()
