"""Random changes of images, against closed forms and against torchvision."""

import math

import pytest
import torch
import torchvision.transforms.v2.functional as V
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import InterpolationMode

from bures.networks import Preprocessing
from bures.training import AUGMENTATIONS, Augmentation, Inputs
from bures.training._augment import centre_crop


def pictures(n=6, channels=3, side=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, channels, side, side), dtype=torch.uint8, generator=generator)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def windows(augmentation, n, ratio, seed=0):
    return augmentation._windows(n, ratio, torch.device("cpu"), generator(seed))


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_type_and_range(name, channels):
    images = pictures(channels=channels)
    before = images.clone()
    changed = AUGMENTATIONS[name](images, 12, generator())
    assert changed.shape == (6, channels, 12, 12)
    assert changed.dtype == torch.float32
    assert float(changed.min()) >= 0
    assert float(changed.max()) <= 1 + 1e-6
    assert not changed.requires_grad
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
def test_the_generator_alone_decides(name):
    images = pictures()
    torch.manual_seed(1)
    first = AUGMENTATIONS[name](images, 12, generator(5))
    torch.manual_seed(2)
    assert torch.equal(AUGMENTATIONS[name](images, 12, generator(5)), first)
    if name != "none":
        assert not torch.equal(AUGMENTATIONS[name](images, 12, generator(6)), first)
        assert not torch.equal(first[0], AUGMENTATIONS[name](images[:1].expand(6, -1, -1, -1), 12, generator(5))[1])


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
def test_a_training_in_float64_sees_the_same_images(name):
    expected = AUGMENTATIONS[name](pictures(), 12, generator())
    torch.set_default_dtype(torch.float64)  # as Lightning does around a step
    try:
        changed = AUGMENTATIONS[name](pictures(), 12, generator())
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(changed, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("side", "size"), [(16, 12), (16, 16), (15, 12), (16, 11)])
def test_no_augmentation_is_the_window_at_the_centre(side, size):
    images = pictures(side=side)
    top = (side - size) // 2
    expected = images[:, :, top : top + size, top : top + size] / 255
    assert torch.equal(AUGMENTATIONS["none"](images, size, generator()), expected)
    assert torch.equal(centre_crop(images, size), images[:, :, top : top + size, top : top + size])
    assert centre_crop(images, 99) is images or torch.equal(centre_crop(images, 99), images)


def test_flipping_alone_mirrors_about_half_of_the_images():
    images = pictures(n=400, side=8)
    changed = AUGMENTATIONS["flip"](images, 8, generator())
    straight = (changed - images / 255).abs().amax(dim=(1, 2, 3)) < 1e-5
    mirrored = (changed - torch.flip(images, [3]) / 255).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert bool((straight ^ mirrored).all())
    assert abs(int(mirrored.sum()) - 200) < 5 * 10  # standard deviation 10


@pytest.mark.parametrize("mirror", [False, True])
def test_rotation_scale_and_shift_are_those_of_torchvision(mirror):
    side = 21
    images = pictures(n=8, channels=1, side=side)
    augmentation = Augmentation(rotation=40.0, scale=1.5, translation=0.2, flip=mirror)
    changed = augmentation(images, side, generator())
    for image, result, theta in zip(images, changed, windows(augmentation, 8, 1.0), strict=True):
        # theta leads from the result to the picture; torchvision's arguments lead the other way.
        linear, offset = theta[:, :2].double(), theta[:, 2].double()
        zoom = linear.det().abs().sqrt()
        if linear.det() < 0:  # the mirror acts first on the way back: last on the way forth
            result = torch.flip(result, [2])
            linear = linear @ torch.diag(torch.tensor([-1.0, 1.0], dtype=torch.float64))
        angle = math.degrees(math.atan2(float(linear[1, 0]), float(linear[0, 0])))
        shift = -(torch.linalg.inv(linear) @ offset) * side / 2
        expected = V.affine(
            image.float() / 255,
            angle=-angle,
            translate=shift.tolist(),
            scale=float(1 / zoom),
            shear=[0.0, 0.0],
            interpolation=InterpolationMode.BILINEAR,
        )
        torch.testing.assert_close(result, expected, atol=2e-4, rtol=0)


def test_angles_scales_and_shifts_reach_what_is_asked_for_and_no_further():
    augmentation = Augmentation(rotation=15.0, scale=1.15, translation=0.1)
    theta = windows(augmentation, 4000, 1.0).double()
    angles = torch.rad2deg(torch.atan2(theta[:, 1, 0], theta[:, 0, 0]))
    zooms = torch.linalg.det(theta[:, :, :2]).sqrt()
    shifts = theta[:, :, 2] / 2  # a side is 2 long
    for values, low, high in ((angles, -15, 15), (zooms.log(), -math.log(1.15), math.log(1.15)), (shifts, -0.1, 0.1)):
        assert low <= float(values.min()) < 0.95 * low
        assert 0.95 * high < float(values.max()) <= high + 1e-6
        assert abs(float(values.mean())) < 0.05 * high
    assert (shifts[:, 0] * shifts[:, 1]).mean().abs() < 5e-4  # drawn each by itself


@given(st.sampled_from(["crop", "crop-colour", "flip"]), st.integers(8, 40), st.integers(1, 40), st.integers(0, 2**32))
def test_windows_of_photographs_stay_inside(name, side, size, seed):
    theta = windows(AUGMENTATIONS[name], 50, min(size, side) / side, seed)
    corners = torch.tensor([[x, y, 1.0] for x in (-1, 1) for y in (-1, 1)])
    assert float((theta @ corners.T).abs().max()) <= 1 + 1e-6


@pytest.mark.parametrize("name", ["crop", "flip"])
@pytest.mark.parametrize("size", [12, 16])
def test_a_white_photograph_stays_white(name, size):
    white = torch.full((200, 1, 16, 16), 255, dtype=torch.uint8)
    changed = AUGMENTATIONS[name](white, size, generator())
    assert float(changed.min()) > 1 - 1e-4


def test_crops_cover_the_share_of_the_area_that_is_asked_for():
    theta = windows(AUGMENTATIONS["crop"], 4000, 0.5)
    width, height = theta[:, 0, 0].abs(), theta[:, 1, 1].abs()
    area = width * height
    assert 0.25 * 0.99 <= float(area.min()) < 0.27
    assert 0.9 < float(area.max()) <= 1 + 1e-6
    aspect = width / height
    assert float(aspect.max()) <= 4 / 3 + 1e-5
    assert float(aspect.min()) >= 3 / 4 - 1e-5


def test_outside_of_a_digit_is_its_ground():
    white = torch.full((200, 1, 16, 16), 255, dtype=torch.uint8)
    changed = AUGMENTATIONS["affine"](white, 16, generator())
    assert float(changed.min()) == 0


def test_colours_change_as_those_of_torchvision():
    images = pictures(n=40, side=12)
    plain, coloured = Augmentation(flip=True), Augmentation(flip=True, colour=0.5, grey=0.3)
    drawn = generator(3)
    changed = plain(images, 12, drawn)
    brightness, contrast, saturation = coloured._factors(40, images.device, drawn).reshape(3, 40).tolist()
    for image, result, b, c, s in zip(
        changed, coloured(images, 12, generator(3)), brightness, contrast, saturation, strict=True
    ):
        expected = V.adjust_saturation(V.adjust_contrast(V.adjust_brightness(image, b), c), s)
        torch.testing.assert_close(result, expected, atol=1e-3, rtol=0)  # torchvision's luminance has four digits


def test_factors_of_colours_reach_what_is_asked_for_and_no_further():
    brightness, contrast, saturation = Augmentation(colour=0.4, grey=0.2)._factors(4000, "cpu", generator())
    grey = saturation == 0
    assert abs(int(grey.sum()) - 800) < 5 * 26  # standard deviation 25
    for factors in (brightness, contrast, saturation[~grey]):
        assert 0.6 <= float(factors.min()) < 0.62
        assert 1.38 < float(factors.max()) <= 1.4
        assert abs(float(factors.mean()) - 1) < 0.02


def test_grey_images_have_no_colours_and_those_of_one_channel_never_had():
    grey = Augmentation(flip=True, grey=1.0)
    changed = grey(pictures(), 16, generator())
    assert torch.equal(changed[:, :1].expand(-1, 3, -1, -1), changed)
    images = pictures(channels=1)
    torch.testing.assert_close(grey(images, 16, generator()), Augmentation(flip=True)(images, 16, generator()))


def test_colours_leave_the_windows_as_they_were():
    middle = (100 + torch.arange(256) // 8).to(torch.uint8)  # grey tones that no change of light makes black or white
    images = middle.reshape(1, 1, 16, 16).expand(20, 3, -1, -1)
    crops = AUGMENTATIONS["crop"](images, 12, generator(1))
    coloured = AUGMENTATIONS["crop-colour"](images, 12, generator(1))
    assert not torch.equal(crops, coloured)
    for crop, other in zip(crops, coloured, strict=True):  # then the change is linear
        pair = torch.stack([crop.flatten(), other.flatten()]).double()
        assert float(torch.corrcoef(pair)[0, 1]) > 1 - 1e-6


def test_a_second_view_has_changes_of_its_own():
    preprocessing = Preprocessing(mean=(0.5,) * 3, std=(0.25,) * 3, input_size=12)
    images = pictures()
    inputs = Inputs(preprocessing, 12, AUGMENTATIONS["crop"], second_view=AUGMENTATIONS["crop-colour"])
    for view, name in ((inputs.training, "crop"), (inputs.training_again, "crop-colour")):
        expected = (AUGMENTATIONS[name](images, 12, generator(3)) - 0.5) / 0.25
        torch.testing.assert_close(view(images, generator(3)), expected)
    same = Inputs(preprocessing, 12, AUGMENTATIONS["crop"])
    assert torch.equal(same.training_again(images, generator(3)), same.training(images, generator(3)))
    unchanged = Inputs(preprocessing, 12, AUGMENTATIONS["crop"], second_view=AUGMENTATIONS["none"])
    assert torch.equal(unchanged.training_again(images, generator(3)), unchanged.evaluation(images))


def test_training_images_are_changed_and_normalised_and_evaluation_images_only_normalised():
    preprocessing = Preprocessing(mean=(0.5,), std=(0.25,), input_size=12)
    inputs = Inputs(preprocessing, 12, AUGMENTATIONS["affine"])
    images = pictures(channels=1)
    expected = (AUGMENTATIONS["affine"](images, 12, generator(3)) - 0.5) / 0.25
    torch.testing.assert_close(inputs.training(images, generator(3)), expected)
    torch.testing.assert_close(inputs.evaluation(images), (centre_crop(images, 12) / 255 - 0.5) / 0.25)
    plain = Inputs(preprocessing, 12)
    assert torch.equal(plain.training(images, generator()), plain.evaluation(images))
    vectors = torch.rand(4, 3)
    assert Inputs(None, None, AUGMENTATIONS["affine"]).training(vectors, generator()) is vectors
