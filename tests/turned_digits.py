"""Real data with a shift for the tests: digits of 8 x 8 pixels that are turned, faded and noisy in the target."""

import torch
from torchvision.transforms.functional import InterpolationMode, rotate

from bures.data import Domain, TensorSamples, optdigits


def turned_digits(angle=25.0):
    """Two domains of grey images, each half of the embedded digits."""
    generator = torch.Generator().manual_seed(0)
    everything = optdigits()
    order = torch.randperm(len(everything), generator=generator)
    source, rest = everything.take(order[:898]), everything.take(order[898:])
    images = rotate(rest.samples.tensor.float(), angle, interpolation=InterpolationMode.BILINEAR)
    images = 60 + 0.5 * images + 15 * torch.randn(images.shape, generator=generator)
    return source, Domain("turned", TensorSamples(images.clamp(0, 255).byte()), rest.class_names, rest.labels)


def turned_pixels(angle=25.0):
    """Pixels (n, 64) from 0 to 1 and labels of the source, then of the target."""
    parts = []
    for domain in turned_digits(angle):
        parts += [domain.samples.tensor.flatten(1).float() / 255, domain.labels]
    return parts
