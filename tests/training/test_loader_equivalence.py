"""Images streamed by worker processes and images kept in memory give one training, with the pixels of the files."""

import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import CLASSES, SMALL, adapt, differences
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from bures.data import ImageFiles, _decoding, image_folder
from bures.data._decoding import BadImageError
from bures.training import PairData, Recipe
from bures.training._prediction import batches

# Networks that made a few steps predict few classes.
pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")

SIZE = 12
RECIPE = Recipe(
    method="ckb", network="lenet", image_size=8, stored_size=SIZE, augment="affine", class_balanced=True, **SMALL
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Photographs of four classes in two places, of several sizes, kinds of files and modes."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    patterns = rng.uniform(0, 140, (4, 3, 3, 3))
    for place, n, ground in (("here", 14, 0), ("there", 11, 60)):
        for label, name in enumerate(CLASSES):
            (root / place / name).mkdir(parents=True)
            for number in range(n):
                pixels = patterns[label].repeat(5 + number % 3, axis=0).repeat(6, axis=1) + ground
                pixels = (pixels + rng.uniform(0, 55, pixels.shape)).astype(np.uint8)
                image = Image.fromarray(pixels).convert("L" if number % 5 == 0 else "RGB")
                image.save(root / place / name / f"{number}.{('png', 'jpg', 'bmp')[number % 3]}")
    return root


def domains(folders, *, in_memory):
    return [image_folder(folders / place, size=SIZE, in_memory=in_memory) for place in ("here", "there")]


def steps(source, target, recipe, **options):
    """The batches of two epochs and a part of the next: each domain begins another pass within them."""
    data = PairData(source, target.hide_labels()[0], recipe, **options)
    found = []
    for epoch in range(3):
        data.first_step = epoch * data.steps_per_epoch
        found += list(data.train_dataloader())
    assert data.steps_per_epoch == len(target) // recipe.batch_size == 2
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("balanced", [False, True])
def test_streamed_batches_are_those_in_memory_bit_by_bit(folders, workers, balanced):
    recipe = RECIPE.override({"class_balanced": balanced})
    kept = steps(*domains(folders, in_memory=True), recipe)
    streamed = steps(*domains(folders, in_memory=False), recipe, n_workers=workers)
    assert [step.number for step in streamed] == [step.number for step in kept] == list(range(6))
    for one, other in zip(streamed, kept, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one[1:], other[1:], strict=True))
    drawn = torch.cat([step.x_s.flatten(1) for step in streamed])
    assert len(drawn.unique(dim=0)) > 16  # and not one batch again and again


def test_batches_have_the_pixels_and_labels_that_torchvision_reads(folders):
    """An ordinary data set and loader, with nothing of ours, give the same pictures for the same numbers."""
    source, target = domains(folders, in_memory=True)
    data = PairData(source, target.hide_labels()[0], RECIPE)

    def warped(image):
        return torch.from_numpy(np.array(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR))).permute(2, 0, 1)

    plain = ImageFolder(str(folders / "here"), transform=warped)
    by_name = {path: number for number, (path, _) in enumerate(plain.samples)}
    files = image_folder(folders / "here", size=SIZE).samples.paths
    order = [by_name[files[index]] for step in range(3) for index in data.plans[0].indices(step).tolist()]
    loader = DataLoader(plain, batch_size=RECIPE.batch_size, sampler=order)
    ours = steps(source, target, RECIPE)[:3]
    for step, (images, labels) in zip(ours, loader, strict=True):
        assert torch.equal(step.x_s, images)
        assert torch.equal(step.y_s, labels)


def test_a_streamed_training_ends_as_one_in_memory(folders, tmp_path):
    files = domains(folders, in_memory=False)
    kept = adapt(*files, RECIPE, tmp_path / "kept", in_memory=True)
    streamed = adapt(*files, RECIPE, tmp_path / "streamed", in_memory=False, n_workers=2)
    assert kept.manifest["final"]["accuracy"] is not None
    assert differences(kept.path, streamed.path) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_images_in_files_are_evaluated_as_those_in_memory(folders, workers):
    streamed, kept = (domains(folders, in_memory=value)[0].samples for value in (False, True))
    cpu = torch.device("cpu")
    for one, other in zip(batches(streamed, cpu, 9, workers), batches(kept, cpu, 9), strict=True):
        assert torch.equal(one, other)


def test_threads_decode_the_images_of_an_evaluation_a_little_ahead(folders, monkeypatch):
    monkeypatch.setattr(_decoding, "AHEAD", 10)
    samples = domains(folders, in_memory=False)[0].samples
    decoded, threads = [], set()
    decode = ImageFiles._decode

    def noted(images, number):
        decoded.append(number)
        threads.add(threading.current_thread())
        return decode(images, number)

    monkeypatch.setattr(ImageFiles, "_decode", noted)
    stream = batches(samples, torch.device("cpu"), 4)
    next(stream)
    assert threading.main_thread() not in threads
    for _ in range(100):
        if len(decoded) == 14:
            break
        time.sleep(0.05)
    time.sleep(0.1)
    assert sorted(decoded) == list(range(14))  # 4 that were asked for, and 10 more
    stream.close()
    assert not any(thread.is_alive() for thread in threads)


def test_a_file_that_goes_away_during_an_evaluation_is_named(folders, tmp_path):
    for number in range(6):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / f"{number}.png")
    samples = image_folder(tmp_path, size=SIZE).samples
    (tmp_path / "3.png").write_bytes(b"")
    with pytest.raises(BadImageError, match=r"3\.png cannot be decoded: the file is empty"):
        list(batches(samples, torch.device("cpu"), 4))
