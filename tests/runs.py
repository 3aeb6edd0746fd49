"""Small finished runs, and files of samples, for the tests of what is done with a run."""

import numpy as np
import torch
from PIL import Image

from bures.data import Domain, TensorSamples, drifting_class, optdigits
from bures.training import Recipe, adapt

# Names that a spreadsheet, a browser or Rich would take for more than a name.
CLASSES = ("=cmd()", "<script>", "[red]cat, tame")


def feature_domain(part, n=90):
    """Gaussian classes in two dimensions with awkward names; part 0 is the source, 1 the target."""
    pair = drifting_class(n, drift=0.5, seed=0)
    x, y = (pair.xs, pair.ys) if part == 0 else (pair.xt, pair.yt)
    return Domain(("here", "there")[part], TensorSamples(torch.as_tensor(x)), CLASSES, y)


def train_on_features(folder, **fields):
    options = {"method": "source", "epochs": 8, "batch_size": 30, "hidden": 16, "features": 8, **fields}
    return adapt(feature_domain(0), feature_domain(1), Recipe(**options), folder)


def train_on_digits(folder, **fields):
    """LeNet on grey images of 8 x 8 pixels."""
    digits = optdigits()
    options = {"method": "source", "network": "lenet", "epochs": 2, "epoch": 60, "batch_size": 25}
    options |= {"hidden": 32, "features": 16}
    return adapt(digits.take(range(500)), digits.take(range(500, 800)), Recipe(**(options | fields)), folder)


def write_digit(path, number, mode="L"):
    """One of the embedded digits as an image file, without loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(optdigits().samples.tensor[number, 0])).convert(mode).save(path)
