"""
The shift while a network trains, in Lightning
==============================================

A module of one's own, trained by Lightning with a loss between a labelled and an unlabelled domain, and watched by
:class:`bures.integrations.lightning.ShiftMonitor`: the callback takes any module and logs how far the domains are
apart, how frequent the classes of the target seem to be, and how accurate the network is likely to be there.

The data are scikit-learn's digits of 8 x 8 pixels; in the target they are turned and noisy.
"""

import logging
import warnings

import lightning as L
import matplotlib.pyplot as plt
import torch
from _common import read_arguments, save_figure, write_manifest
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms.functional import InterpolationMode, rotate

import bures
from bures.data import optdigits
from bures.integrations.lightning import ShiftMonitor

arguments = read_arguments("lightning_loop")
EPOCHS = 6 if arguments.quick else 40
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message=".*does not have many workers.*")
warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated.*")

# %%
# Three sets of vectors of 64 pixels: source samples to train on, others to watch with, and the target.

digits = optdigits()
generator = torch.Generator().manual_seed(arguments.seed)
order = torch.randperm(len(digits), generator=generator)
images, labels = digits.samples.tensor[order].float(), digits.labels[order]
turned = rotate(images[1000:], 25.0, interpolation=InterpolationMode.BILINEAR)
turned += 15 * torch.randn(turned.shape, generator=generator)
pixels = torch.cat([images[:1000], turned]).flatten(1) / 255
train, held_out, target = (
    TensorDataset(pixels[part], labels[part]) for part in (slice(800), slice(800, 1000), slice(1000, None))
)

# %%
# The module. A step reads a batch of each domain and adds the distance between them, given the class, to the
# cross-entropy of the source. The target's labels are in its batches for the monitor; the step does not touch them.


class Adapted(L.LightningModule):
    def __init__(self, distance):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Linear(128, 64), nn.Tanh(), nn.BatchNorm1d(64)
        )
        self.head = nn.Linear(64, 10)
        self.distance = distance

    def forward(self, x):
        z = self.body(x)
        return z, self.head(z)

    def training_step(self, batch, batch_idx):
        (x_s, y_s), (x_t, _) = batch["source"], batch["target"]
        n = len(x_s)
        z, logits = self(torch.cat([x_s, x_t]))  # in one pass, so that BatchNorm has the same statistics for both
        loss = cross_entropy(logits[:n], y_s)
        if self.distance is not None:
            loss = loss + self.distance(z[:n], y_s, z[n:], logits[n:].softmax(dim=1))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


# %%
# The monitor is told how to get features and logits from a batch, and where the labels are. It looks at up to 512
# samples of each domain after every epoch.


def outputs(module, batch):
    return module(batch[0])


def run(distance):
    torch.manual_seed(arguments.seed)
    monitor = ShiftMonitor(
        outputs,
        DataLoader(held_out, batch_size=100),
        DataLoader(target, batch_size=256),
        target_labels=lambda batch: batch[1],
    )
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[monitor],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    loaders = {
        "source": DataLoader(train, batch_size=128, shuffle=True, drop_last=True),
        "target": DataLoader(target, batch_size=128, shuffle=True, drop_last=True),
    }
    trainer.fit(Adapted(distance), loaders)
    return monitor.history


histories = {"source only": run(None), "CKB": run(bures.CKBLoss()), "CKW": run(bures.CKWLoss())}
for name, history in histories.items():
    print(name, {key: round(value, 3) for key, value in history[-1].items()})

# %%
# Left: either loss brings the domains together, given the class. CKB compares covariances; CKW compares the means of
# the classes as well, which are not the same here either. Right: the accuracy on the target, and as dots what the
# confidences alone say of it. The estimate trusts that the network is as unsure where it errs in the target as in the
# source: how far this holds shows in the distance of the dots from the line, and cannot be known without labels.

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for (name, history), colour in zip(histories.items(), ("#9aa5b1", "#2166ac", "#b2182b"), strict=True):
    epochs = [row["epoch"] + 1 for row in history]
    axes[0].plot(epochs, [row["shift/ckb"] for row in history], color=colour, label=name)
    axes[1].plot(epochs, [row["shift/target_accuracy"] for row in history], color=colour, label=name)
    estimates = [row["shift/target_accuracy_estimate"] for row in history]
    axes[1].plot(epochs, estimates, ":", color=colour)
axes[0].set(xlabel="epoch", ylabel="squared CKB")
axes[1].set(xlabel="epoch", ylabel="accuracy on the target", ylim=(0, 1))
for axis in axes:
    axis.legend(frameon=False)
save_figure(figure, arguments.output, "lightning_loop")

settings = {"epochs": EPOCHS, "batch": 128, "optimiser": "Adam 1e-3"}
path = write_manifest("lightning_loop", arguments, settings, {"histories": histories})
print(f"manifest: {path}")
