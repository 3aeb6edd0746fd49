"""The figure of features that `bures adapt` writes: which class is where, and how it is known."""

import subprocess
import sys
from types import SimpleNamespace

import matplotlib as mpl
import pytest
import torch

from bures.data import Domain, TensorSamples
from bures.experiments import feature_figure

CLASSES = ["cat", "$dog$", "emu"]


def model():
    """Features are the samples, and the first class is predicted for all."""

    def predict(domain, progress=None):
        if progress is not None:
            progress(len(domain), len(domain))
        features = domain.samples.take(torch.arange(len(domain)))
        return SimpleNamespace(features=features, probabilities=torch.eye(3)[torch.zeros(len(domain), dtype=int)])

    return SimpleNamespace(predict=predict)


PLACED = """
import numpy as np
from bures.experiments._feature_figure import tsne_plane
for n in (4, 30):
    noise = np.random.default_rng(0).normal(size=(n, 4))
    for size in (0.0, 1e-30, 1e-10, 1e25):
        for offset in (0.0, 1.0):
            plane = tsne_plane((size * noise + offset).astype(np.float32), 0)
            assert plane.shape == (n, 2) and np.isfinite(plane).all(), (n, size, offset)
            assert plane.any() == (size == 1e25 or (size > 0 and offset == 0)), (n, size, offset)
"""


def test_features_that_are_all_the_same_or_of_absurd_size_have_a_map():
    done = subprocess.run([sys.executable, "-c", PLACED], capture_output=True, text=True)  # it may end the process
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("labelled", [True, False])
def test_classes_are_named_where_they_lie_and_predicted_ones_are_said_to_be(labelled):
    y = torch.arange(30) % 3
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)) + 8 * torch.eye(3, 4)[y]
    source = Domain("here", TensorSamples(x), CLASSES, labels=y)
    target = Domain("there", TensorSamples(x + 1), CLASSES, labels=y if labelled else None)
    told = []
    figure = feature_figure(
        {"source": model(), "ckb": model()}, source, target, progress=lambda *state: told.append(state)
    )
    assert told == [(30, 120), (60, 120), (90, 120), (120, 120)]
    figure.draw_without_rendering()
    for axis in figure.axes:
        assert [text.get_text() for text in axis.texts] == CLASSES
    (legend,) = figure.legends
    words = "" if labelled else ", classes as predicted"
    assert [text.get_text() for text in legend.get_texts()] == ["source: here", f"target: there{words}"]


@pytest.mark.filterwarnings("ignore:cmr10 font should ideally")  # of the formatter of ticks, which there are none of
def test_names_in_a_script_that_the_font_lacks_are_drawn_in_another():
    y = torch.arange(30) % 3
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)) + 8 * torch.eye(3, 4)[y]
    snow = Domain("here", TensorSamples(x), ["cat", "dog", "☃"], labels=y)
    with mpl.rc_context({"font.family": ["cmr10"]}):
        figure = feature_figure({"source": model()}, snow, snow)
    figure.draw_without_rendering()  # a character that is missing is a warning, which is an error here
