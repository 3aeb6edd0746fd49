"""
A network in a plain training loop
==================================

The pieces of the library in a loop of torch's own: a labelled source, a target whose labels training cannot reach, a
network, and a method that adds its terms to the source's cross-entropy.

The data are scikit-learn's digits of 8 x 8 pixels, half of them as they are (source), the other half turned, faded
and noisy (target). A network with BatchNorm that has seen the source only fails here mostly because of its
statistics: gains are to be read over the better of the first two rows.
"""

import numpy as np
import torch
from _common import read_arguments, write_manifest
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy
from torchvision.transforms.functional import InterpolationMode, rotate

from bures.data import Domain, TensorSamples, optdigits
from bures.methods import Batch, make_method
from bures.networks import adapt_batchnorm, build_network

arguments = read_arguments("training_loop")
METHODS = ("source", "source+adabn", "entropy", "kernel-bures", "ckb", "ckw")
SEEDS = range(1 if arguments.quick else 5)
EPOCHS = 4 if arguments.quick else 20

# %%
# Two domains. ``hide_labels`` parts the target into samples without labels, for training, and an evaluator.

digits = optdigits()
generator = torch.Generator().manual_seed(arguments.seed)
order = torch.randperm(len(digits), generator=generator)
source, rest = digits.take(order[: len(digits) // 2]), digits.take(order[len(digits) // 2 :])
images = rotate(rest.samples.tensor.float(), 25.0, interpolation=InterpolationMode.BILINEAR)
images = 60 + 0.5 * images + 15 * torch.randn(images.shape, generator=generator)
changed = Domain("turned", TensorSamples(images.clamp(0, 255).byte()), rest.class_names, labels=rest.labels)
target, evaluator = changed.hide_labels()
print(source, target, sep="\n")

# %%
# The loop: each step takes a batch of either domain, and the method says what both together add to the loss.


def batches(domain, size, generator):
    order = torch.randperm(len(domain), generator=generator)
    return order[: len(order) // size * size].split(size)


def train(name, seed):
    """Accuracy on the target after the last epoch."""
    network, method = build_network("lenet", 10, image_size=8, head="linear", seed=seed), make_method(name)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(EPOCHS):
        for s, t in zip(batches(source, 128, generator), batches(target, 128, generator), strict=True):
            z_s, logits_s = network(network.preprocessing(source.samples.take(s)))
            z_t, logits_t = network(network.preprocessing(target.samples.take(t)))
            y_s = source.labels[s]
            loss = cross_entropy(logits_s, y_s) + method(Batch(z_s, logits_s, y_s, z_t, logits_t), epoch).total
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    everything = network.preprocessing(target.samples.tensor)
    if method.adapts_batchnorm:
        adapt_batchnorm(network, [everything])
    return evaluator.accuracy(network.predict_proba(everything))


# %%
# Last epoch, defaults of every method, no choice made with target labels.

accuracies = {name: [100 * train(name, seed) for seed in SEEDS] for name in METHODS}
table = Table("method", "target accuracy", title="Digits, turned and faded", title_justify="left")
for name, values in accuracies.items():
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    table.add_row(name, f"{np.mean(values):.1f}{spread}")
Console().print(table)

settings = {
    "epochs": EPOCHS,
    "seeds": list(SEEDS),
    "batch": 128,
    "network": "lenet, linear head",
    "optimiser": "Adam 1e-3",
}
path = write_manifest("training_loop", arguments, settings, {"target_accuracy_last_epoch": accuracies})
print(f"manifest: {path}")
