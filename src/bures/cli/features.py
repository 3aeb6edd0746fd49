"""``bures features``: feature files from images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import torch
import typer
from PIL import Image

from bures.cli._naming import said_of_domain
from bures.cli._options import DataRoot, Device, Strict
from bures.cli._progress import progress_bar
from bures.cli._serving import check_not_read
from bures.data import Domain, ImageFiles, extract_features, load_domain
from bures.data._extraction import check_output
from bures.networks import Backbone, backbone

__all__ = ["features"]

RANDOM = "random"
WITHOUT_PUBLIC_WEIGHTS = ("lenet", "resnet50-caffe")

features = typer.Typer(
    name="features", help="Turn images into feature files.", no_args_is_help=True, add_completion=False
)


@features.callback()
def _group() -> None:
    """Keeps ``extract`` a command of its own while it is the only one."""


@features.command()
def extract(
    spec: Annotated[str, typer.Argument(metavar="IMAGES", help="Image folder, or name such as office10/dslr or usps.")],
    network: Annotated[
        str, typer.Option(help="Backbone: lenet, resnet50-caffe, a torchvision model or timm:NAME.")
    ] = "resnet50",
    weights: Annotated[
        str | None,
        typer.Option(help="File, name of public weights, or 'random'. Default: the network's public weights."),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Allow the download of what is missing.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file. Default: DOMAIN-NETWORK.npz, in this folder.")
    ] = None,
    data_root: DataRoot = None,
    batch_size: Annotated[int, typer.Option(help="Images at a time.")] = 64,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the images the network sees. Default: what it was made for.")
    ] = None,
    device: Device = "auto",
    strict: Strict = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Drop what an earlier start left and replace the file.")
    ] = False,
) -> None:
    """Write the features of images to a .npz file that every command reads.

    A killed extraction continues where it stopped when the same command is given again.
    """
    if output is not None:
        check_not_read(check_output(output, restart=restart), spec, data_root=data_root)
    # A wrong name or file should not wait for thousands of images; LeNet alone is built for the images it gets.
    body = None if network == "lenet" else _backbone(network, weights, download)
    with progress_bar("checking images") as report, said_of_domain("IMAGES"):
        domain = load_domain(spec, data_root=data_root, download=download, strict=strict, progress=report)
    if body is None:
        side = _own_side(domain) if image_size is None else image_size
        body = _backbone(network, weights, download, in_channels=domain.samples.shape[0], image_size=side)
    file = output
    if file is None:
        file = Path(re.sub(r"[^\w.-]+", "_", f"{domain.name}-{network}") + ".npz")
        check_not_read(file, spec, data_root=data_root)
    started: list[int] = []  # where an earlier start had come to
    with progress_bar("extracting features") as report:

        def note(done: int, total: int) -> None:
            if not started:
                started.append(done)
            report(done, total)

        result = extract_features(
            domain,
            body,
            file,
            batch_size=batch_size,
            image_size=image_size,
            device=device,
            restart=restart,
            progress=note,
        )
    _show(file, result, started[0])


def _backbone(
    network: str,
    weights: str | None,
    download: bool,
    *,
    in_channels: int | None = None,
    image_size: int | None = None,
) -> Backbone:
    if network == "identity":
        raise ValueError("--network identity takes feature vectors; accepted is a network for images")
    if weights is None and network in WITHOUT_PUBLIC_WEIGHTS:
        raise ValueError(
            f"--weights is not given, and {network!r} has no public weights; accepted is a file, or "
            f"'{RANDOM}' for a network that has learnt nothing"
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # random weights are the same when a killed extraction continues
        return backbone(
            network,
            weights=None if weights == RANDOM else weights or "default",
            download=download,
            in_channels=in_channels,
            image_size=image_size,
        )


def _own_side(domain: Domain) -> int:
    """The side of the images, which must be square and of one size."""
    if not isinstance(domain.samples, ImageFiles):
        sizes = {tuple(domain.samples.shape[1:])}
    else:
        sizes = set()
        for path in domain.samples.paths:
            with Image.open(path) as image:
                sizes.add((image.height, image.width))
    if len(sizes) > 1 or len(set(next(iter(sizes)))) != 1:
        raise ValueError(
            f"the images of {domain.name!r} are not squares of one size, which --network lenet needs; "
            "choose the size they are warped to with --image-size, for example 28"
        )
    return int(next(iter(sizes))[0])


def _show(file: Path, domain: Domain, started: int) -> None:
    classes = f", {domain.n_classes} classes" if domain.labels is not None else ", no labels"
    earlier = f" ({started} of them from an earlier start)" if started else ""
    typer.echo(f"{file}  {len(domain)} samples{earlier} of {domain.samples.shape[0]} features{classes}")
