"""Samples that two domains share: counted bit by bit, in memory and in files."""

import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from bures.data import Domain, ImageFiles, TensorSamples
from bures.data._overlap import count_shared


def in_memory(x):
    return Domain("rows", TensorSamples(x), [])


def in_files(paths):
    return Domain("files", ImageFiles([str(path) for path in paths], 8), [])


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_rows_are_counted_as_often_as_the_target_has_them(dtype):
    x = np.arange(5 * 12).reshape((5, 12) if dtype is np.float32 else (5, 3, 2, 2)).astype(dtype)
    source, target = x[:3], np.concatenate([x[2:], x[2:3], x[:1] + dtype(100)])
    by_hand = sum(any(np.array_equal(a, b) for a in source) for b in target)
    assert by_hand == 2
    assert count_shared(in_memory(source), in_memory(target)) == by_hand


def test_samples_of_other_shapes_or_elsewhere_are_not_shared(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    files = in_files([tmp_path / "a.png"])
    wide, high = torch.zeros(4, 1, 2, 6, dtype=torch.uint8), torch.zeros(4, 1, 6, 2, dtype=torch.uint8)
    assert count_shared(in_memory(wide), in_memory(high)) == 0  # of as many bytes, all of them the same
    decoded = in_memory(files.samples.take(torch.tensor([0])))
    assert count_shared(files, decoded) == count_shared(decoded, files) == 0


def test_files_are_the_same_by_content_not_by_name_or_size(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    # Bitmaps of one size, which names and sizes alone would take for the same.
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "a" / f"{number}.bmp")
        Image.new("RGB", (8, 8), (number, 9, 0)).save(tmp_path / "b" / f"{number}.bmp")
    source, target = (sorted((tmp_path / folder).iterdir()) for folder in ("a", "b"))
    assert len({path.stat().st_size for path in (*source, *target)}) == 1
    assert count_shared(in_files(source), in_files(target)) == 0
    shutil.copy(source[0], tmp_path / "b" / "copy.bmp")
    os.symlink(source[1], tmp_path / "b" / "link.bmp")
    assert count_shared(in_files(source), in_files(sorted((tmp_path / "b").iterdir()))) == 2
    assert count_shared(in_files(source), in_files(source)) == 3
