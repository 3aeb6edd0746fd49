"""LeNet, the digits backbone of the domain adaptation literature."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from bures.arrays import check_choice, check_count
from bures.networks._checks import check_batch_size

__all__ = ["NORMS", "LeNet"]

NORMS = ("batch", "group", "none")

# Below this size two convolutions of 5 x 5 without padding would leave little or nothing of the image.
SMALLEST_UNPADDED = 20


class LeNet(nn.Module):
    """Two convolutions of 5 x 5, each with pooling, and one fully connected layer, as in the DANN and CyCADA papers.

    Parameters
    ----------
    in_channels : int, optional
        Channels of the images.
    image_size : int, optional
        Side of the square images, at least 4. Below 20 the convolutions are padded, so that small images survive
        them: 16 and 28 pixels both end in maps of 4 x 4, 8 pixels in maps of 2 x 2.
    width : (int, int), optional
        Channels of the two convolutions.
    out_features : int, optional
        Width of the fully connected layer.
    norm : {"batch", "group", "none"}, optional
        Normalisation after each layer. BatchNorm carries source statistics into the target domain: compare a
        source-only network with its version under `adapt_batchnorm`.
    dropout : float, optional
        Dropout before the fully connected layer. None by default: with dropout 0.5 a network collapsed to one class
        once the alignment term came in.

    Attributes
    ----------
    out_features : int
        Width of the output.

    Notes
    -----
    ``forward(x)`` with x (n, in_channels, image_size, image_size) gives (n, out_features), after the last ReLU.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import LeNet
    >>> LeNet()(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 500])
    >>> LeNet(image_size=8, norm="group")(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 500])
    """

    def __init__(
        self,
        in_channels: int = 1,
        *,
        image_size: int = 28,
        width: Sequence[int] = (20, 50),
        out_features: int = 500,
        norm: str = "batch",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("norm", norm, NORMS)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout!r} is out of range; accepted is a probability in [0, 1)")
        if isinstance(width, str | int) or len(width) != 2:
            raise ValueError(f"width={width!r} is not a pair; accepted are two numbers of channels, such as (20, 50)")
        self.in_channels = check_count("in_channels", in_channels)
        self.image_size = check_count("image_size", image_size, minimum=4)
        self.out_features = check_count("out_features", out_features)
        first, second = (check_count(f"width[{i}]", channels) for i, channels in enumerate(width))
        padding = 0 if self.image_size >= SMALLEST_UNPADDED else 2
        side = self.image_size
        for _ in range(2):
            side = (side + 2 * padding - 4) // 2
        bias = norm != "batch"  # BatchNorm would subtract it
        self.convolutions = nn.Sequential(
            nn.Conv2d(self.in_channels, first, 5, padding=padding, bias=bias),
            _norm(norm, first, images=True),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, 5, padding=padding, bias=bias),
            _norm(norm, second, images=True),
            nn.MaxPool2d(2),
            nn.ReLU(),
        )
        self.fully_connected = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout) if dropout else nn.Identity(),
            nn.Linear(second * side * side, self.out_features, bias=bias),
            _norm(norm, self.out_features, images=False),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, out_features) of a batch of images."""
        expected = (self.in_channels, self.image_size, self.image_size)
        if x.ndim != 4 or tuple(x.shape[1:]) != expected:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; accepted is (n, {', '.join(map(str, expected))}): resize the images, "
                "or build LeNet with other in_channels and image_size"
            )
        check_batch_size(self, x.shape[0])  # len(x) would fix the size of the batch in an exported graph
        features: Tensor = self.fully_connected(self.convolutions(x))
        return features


def _norm(norm: str, channels: int, *, images: bool) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels) if images else nn.BatchNorm1d(channels)
    if norm == "group":
        groups = next(groups for groups in (8, 7, 6, 5, 4, 3, 2, 1) if channels % groups == 0)
        return nn.GroupNorm(groups, channels)
    return nn.Identity()
