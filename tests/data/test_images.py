"""Image files of every kind become RGB of one size; bad files are found, named and counted."""

import os
import unicodedata

import numpy as np
import pytest
import torch
from PIL import Image

from bures.data import ImageFiles, TensorSamples, check_images, image_folder
from bures.data._decoding import BadImageError, BadImageWarning, decode_image


def save(path, color=(200, 100, 50), mode="RGB", size=(20, 12), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).convert(mode).save(path, **options)
    return path


@pytest.fixture
def noise(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, size=(64, 48, 3), dtype=np.uint8)
    path = tmp_path / "noise.jpg"
    Image.fromarray(pixels).save(path)
    return path


def damaged(folder, noise):
    """A file of each kind of damage."""
    folder.mkdir(exist_ok=True)
    whole = noise.read_bytes()
    contents = {
        "empty.jpg": b"",
        "truncated.jpg": whole[: len(whole) // 2],
        "header.jpg": whole[:30],
        "text.png": b"this is no image at all",
        "html.jpg": b"<html>404 not found</html>",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


@pytest.mark.parametrize(
    ("mode", "suffix", "expected"),
    [
        ("RGB", ".png", (200, 100, 50)),
        ("RGBA", ".png", (200, 100, 50)),
        ("P", ".png", (200, 100, 50)),
        ("CMYK", ".tif", (200, 100, 50)),
        ("L", ".png", (124, 124, 124)),
        ("LA", ".png", (124, 124, 124)),
        ("1", ".png", None),
        ("RGB", ".webp", (200, 100, 50)),
        ("RGB", ".jpg", (200, 100, 50)),
        ("P", ".gif", (200, 100, 50)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, mode, suffix, expected):
    path = save(tmp_path / f"image{suffix}", mode=mode)
    batch = ImageFiles([path], size=8).take(torch.tensor([0]))
    assert batch.shape == (1, 3, 8, 8)
    assert batch.dtype == torch.uint8
    if expected is not None:
        near = torch.tensor(expected).reshape(1, 3, 1, 1)
        assert int((batch.int() - near).abs().max()) <= 12  # a palette and JPEG round


def test_a_palette_with_transparency_raises_no_warning(tmp_path):
    path = tmp_path / "image.png"
    Image.new("P", (4, 4)).save(path, transparency=b"\x00\x80")
    assert ImageFiles([path], size=4).take(torch.tensor([0])).shape == (1, 3, 4, 4)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["colour.png", "grey.tif", "deep.tif", "inks.tif", "packed.tif"])
def test_pictures_are_turned_as_their_camera_says(tmp_path, name, orientation):
    pixels = np.random.default_rng(0).integers(0, 256, size=(6, 4, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    if name in ("grey.tif", "deep.tif"):  # Pillow maps such files, where they are not compressed, in place of reading
        pixels = np.repeat(pixels[:, :, :1], 3, axis=2)
        picture = Image.fromarray(pixels[:, :, 0] if name == "grey.tif" else pixels[:, :, 0] * np.uint16(257))
    elif name == "inks.tif":
        picture = picture.convert("CMYK")
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"compression": "tiff_lzw"} if name == "packed.tif" else {}
    picture.save(tmp_path / name, exif=exif, **options)
    # From the definition of the tag: which sides of the scene the first row and the first column are.
    upright = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.transpose(1, 0, 2),
        6: np.rot90(pixels, -1),
        7: np.rot90(pixels.transpose(1, 0, 2), 2),
        8: np.rot90(pixels),
    }[orientation]
    np.testing.assert_array_equal(decode_image(tmp_path / name, None).transpose(1, 2, 0), upright)


def test_a_damaged_tag_is_no_damaged_picture(tmp_path):
    path = save(tmp_path / "a.png", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff")
    assert decode_image(path, None).shape == (3, 12, 20)


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path):
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((4, 4), 32896, dtype=np.uint16)).save(path)
    assert ImageFiles([path], size=4).take(torch.tensor([0])).unique().tolist() == [128]


@pytest.mark.parametrize("suffix", [".tif", ".png", ".pgm"])
@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_sixteen_bits_have_the_levels_of_the_same_picture_in_eight(tmp_path, suffix, order):
    levels = np.arange(256).reshape(16, 16)
    path = tmp_path / f"deep{suffix}"
    if suffix == ".pgm":  # not all releases of Pillow write it
        path.write_bytes(b"P5 16 16 65535\n" + (levels * 257).astype(">u2").tobytes())
    else:
        Image.fromarray((levels * 257).astype(order if suffix == ".tif" else np.uint16)).save(path)
    assert np.array_equal(decode_image(path, None), np.stack([levels] * 3))


@pytest.mark.parametrize("top", [1, 255])
def test_floating_point_pictures_have_the_levels_of_the_same_picture_in_bytes(top, tmp_path):
    levels = np.arange(256).reshape(16, 16)
    values = (levels / 255 * top).astype(np.float32)
    values[-1, -1] += 1e-6 * top  # as rounding leaves it
    Image.fromarray(values).save(tmp_path / "float.tif")
    assert np.array_equal(decode_image(tmp_path / "float.tif", None), np.stack([levels] * 3))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.float32([[0, 300]]), "floating-point numbers from 0 to 300; accepted are .* numbers from 0 to 1 or to 255"),
        (np.float32([[-1, 1]]), "floating-point numbers from -1 to 1;"),
        (np.float32([[0, np.nan]]), "NaN or infinity"),
        (np.int32([[0, 65536]]), "wide integers from 0 to 65536,"),
        (np.int32([[-5, 100]]), "wide integers from -5 to 100,"),
        (np.int32([[0, 200]]), "wide integers from 0 to 200,"),  # bytes in 32 bits: black on the scale of 16 bits
    ],
)
def test_pictures_of_unknown_scale_are_bad_images_and_not_black_ones(tmp_path, values, reason):
    path = tmp_path / "odd.tif"
    Image.fromarray(values).save(path)
    with pytest.raises(BadImageError, match=rf"odd\.tif cannot be decoded: its values .*{reason}"):
        decode_image(path, None)
    save(tmp_path / "good.png")
    with pytest.warns(BadImageWarning, match=rf"odd\.tif \(its values .*{reason}.*they are left out"):
        assert image_folder(tmp_path, size=8).ids == ("good.png",)


def test_the_whole_picture_is_warped(tmp_path):
    pixels = np.zeros((10, 40, 3), dtype=np.uint8)
    pixels[:, 20:] = 255
    Image.fromarray(pixels).save(tmp_path / "half.png")
    image = ImageFiles([tmp_path / "half.png"], size=16).take(torch.tensor([0]))[0]
    assert image[:, :, :7].max() == 0
    assert image[:, :, 9:].min() == 255


def test_decoding_into_memory_agrees_with_decoding_on_demand(tmp_path):
    paths = [save(tmp_path / f"{i}.png", color=(i * 10, 0, 0)) for i in range(17)]
    files, calls = ImageFiles(paths, size=8), []
    kept = files.in_memory(n_threads=3, progress=lambda done, total: calls.append((done, total)))
    assert isinstance(kept, TensorSamples)
    assert torch.equal(kept.tensor, files.take(torch.arange(17)))
    assert calls == [(i + 1, 17) for i in range(17)]
    assert files.subset(torch.tensor([3])).paths == (str(paths[3]),)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_bad_files_are_found_with_their_reason(tmp_path, noise, n_threads):
    bad_files = damaged(tmp_path / "bad", noise)
    good, bad = check_images([noise, *bad_files, noise], n_threads=n_threads)
    assert good == [noise, noise]
    assert [path for path, _ in bad] == bad_files
    reasons = {path.name: reason for path, reason in bad}
    assert reasons["empty.jpg"] == "the file is empty"
    assert "truncated" in reasons["truncated.jpg"]
    assert reasons["text.png"] == "not an image file"


def test_strict_names_the_first_files_and_counts_all(tmp_path, noise):
    bad_files = damaged(tmp_path / "bad", noise)
    more = tmp_path / "more.png"
    more.touch()
    message = r"6 of 7 image files cannot be decoded: .*empty.jpg .*; \.\.\. and 1 more$"
    with pytest.raises(BadImageError, match=message):
        check_images([noise, *bad_files, more], strict=True)


def test_a_decompression_bomb_is_a_bad_image(tmp_path, noise, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    _, bad = check_images([noise])
    assert "decompression bomb" in bad[0][1]


def test_taking_a_bad_file_names_it(tmp_path, noise):
    path = damaged(tmp_path / "bad", noise)[1]
    files = ImageFiles([noise, path], size=8)
    with pytest.raises(BadImageError, match=r"truncated\.jpg cannot be decoded"):
        files.take(torch.tensor([0, 1]))
    with pytest.raises(BadImageError, match=r"truncated\.jpg cannot be decoded"):
        files.in_memory(2)


def test_a_missing_file_is_not_called_a_bad_image(tmp_path):
    with pytest.raises(FileNotFoundError):
        check_images([tmp_path / "nowhere.png"])


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_sizes_are_positive_integers(size):
    with pytest.raises(ValueError, match=f"size={size!r} is out of range"):
        ImageFiles([], size=size)


def test_one_path_is_no_sequence_of_paths():
    with pytest.raises(TypeError, match=r"paths='a\.jpg' is one path"):
        ImageFiles("a.jpg")


@pytest.mark.parametrize("n_threads", [0, -2])
def test_the_number_of_threads_is_positive(n_threads):
    with pytest.raises(ValueError, match="n_threads"):
        check_images([], n_threads=n_threads)
    with pytest.raises(TypeError, match=r"n_threads='2' is not an integer; .* of at least 1, or None$"):
        check_images([], n_threads="2")


# Samples in memory


def test_features_become_float32_and_images_stay_bytes():
    assert TensorSamples(np.ones((2, 3))).tensor.dtype == torch.float32
    assert TensorSamples(np.ones((2, 3), dtype=np.float16)).tensor.dtype == torch.float32
    assert TensorSamples(np.ones((2, 3), dtype=">f8")).tensor.tolist() == [[1, 1, 1]] * 2
    images = TensorSamples(np.ones((2, 1, 4, 4), dtype=np.uint8))
    assert images.tensor.dtype == torch.uint8
    assert images.shape == (1, 4, 4)
    assert images.to("cpu").device.type == "cpu"
    assert "2 images (1, 4, 4)" in repr(images)


def test_features_in_float32_share_memory():
    x = torch.ones(2, 3)
    assert TensorSamples(x).tensor.data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.ones(3), ValueError, r"tensor has shape \(3,\) .* accepted are features \(n, d\)"),
        (np.ones((2, 1, 4, 4)), ValueError, "uint8 images"),
        (np.array([["a"]]), TypeError, "tensor is a ndarray"),
        ([[1.0, float("nan")], [0, 0], [float("inf"), 0]], ValueError, r"2 of 3 rows \(rows 0, 2,"),
        ([[1e300]], ValueError, "beyond the range of float32"),
    ],
)
def test_samples_that_are_none_are_refused(value, error, message):
    with pytest.raises(error, match=message):
        TensorSamples(value)


def test_resizing_agrees_with_pillow():
    images = np.random.default_rng(0).integers(0, 256, size=(3, 1, 16, 16), dtype=np.uint8)
    larger = TensorSamples(images).resize(28)
    assert larger.shape == (1, 28, 28)
    for image, resized in zip(images, larger.tensor, strict=True):
        by_pillow = np.asarray(Image.fromarray(image[0]).resize((28, 28), Image.Resampling.BILINEAR), dtype=int)
        assert np.abs(by_pillow - resized[0].numpy()).max() <= 1
    with pytest.raises(ValueError, match="only images"):
        TensorSamples(torch.eye(2)).resize(4)


# Folders


@pytest.fixture
def pets(tmp_path):
    root = tmp_path / "pets"
    for name in ("cat/b.png", "cat/a.jpg", "dog/deep/c.PNG", "cat/.hidden.png", "dog/d.webp", ".git/x/e.png"):
        save(root / name)
    (root / "cat" / "notes.txt").write_text("no image")
    (root / "README.md").write_text("no image")
    return root


def test_class_folders_make_a_labelled_domain(pets):
    domain = image_folder(pets, size=8)
    assert domain.ids == ("cat/a.jpg", "cat/b.png", "dog/d.webp", "dog/deep/c.PNG")
    assert domain.labels.tolist() == [0, 0, 1, 1]
    assert domain.class_names == ("cat", "dog")
    assert domain.name == "pets"
    assert domain.samples.take(torch.arange(4)).shape == (4, 3, 8, 8)


def test_class_names_fix_the_order_and_may_name_absent_classes(pets):
    domain = image_folder(pets, ["dog", "owl", "cat"], size=8)
    assert domain.labels.tolist() == [2, 2, 0, 0]
    with pytest.raises(ValueError, match="has the class folder 'dog', which is not among class_names"):
        image_folder(pets, ["cat"])


def test_a_flat_folder_is_an_unlabelled_domain(tmp_path):
    for name in ("b.png", "a.png", ".c.png"):
        save(tmp_path / "flat" / name)
    domain = image_folder(tmp_path / "flat", ["cat", "dog"], size=8)
    assert domain.labels is None
    assert domain.ids == ("a.png", "b.png")
    assert domain.class_names == ("cat", "dog")
    assert image_folder(tmp_path / "flat").n_classes == 0


@pytest.mark.parametrize("in_memory", [False, True])
def test_bad_images_are_left_out_with_a_warning_or_fatal(pets, noise, in_memory):
    damaged(pets / "cat", noise)
    with pytest.warns(BadImageWarning, match=r"5 of 9 image files cannot be decoded: .*; they are left out"):
        domain = image_folder(pets, size=8, in_memory=in_memory)
    assert domain.ids == ("cat/a.jpg", "cat/b.png", "dog/d.webp", "dog/deep/c.PNG")
    assert domain.labels.tolist() == [0, 0, 1, 1]
    assert domain.samples.take(torch.arange(4)).shape == (4, 3, 8, 8)
    assert isinstance(domain.samples, TensorSamples) is in_memory
    with pytest.raises(BadImageError, match="5 of 9"):
        image_folder(pets, size=8, strict=True, in_memory=in_memory)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_a_link_to_nothing_is_a_bad_image(tmp_path, flat, in_memory):
    folder = tmp_path / "pets" if flat else tmp_path / "pets/cat"
    save(folder / "a.png")
    (folder / "b.png").symlink_to(tmp_path / "gone.png")
    (folder / "c.png").symlink_to(folder / "a.png")
    with pytest.warns(BadImageWarning, match=r"1 of 3 image files .*b\.png \(a link to a file that is not there\)"):
        domain = image_folder(tmp_path / "pets", size=8, in_memory=in_memory)
    assert [name.rpartition("/")[2] for name in domain.ids] == ["a.png", "c.png"]


def test_links_to_folders_inside_a_class_are_followed(tmp_path):
    """They are read as if the folders lay there, behind the others."""
    for name in ("pets/cat/z.png", "pets/dog/d.png", "store/more/a.png", "store/more/deep/b.png", "other/.x/c.png"):
        save(tmp_path / name)
    (tmp_path / "pets/cat/more").symlink_to(tmp_path / "store/more")
    (tmp_path / "store/more/next").symlink_to("../../other/.x")  # a link behind a link, to a hidden folder
    (tmp_path / "pets/cat/.hidden").symlink_to(tmp_path / "store/more")
    (tmp_path / "pets/owl").symlink_to(tmp_path / "store/more")  # a class may be a link itself
    domain = image_folder(tmp_path / "pets", size=8)
    more = ("a.png", "deep/b.png", "next/c.png")
    linked = [*(f"cat/more/{name}" for name in more), "dog/d.png", *(f"owl/{name}" for name in more)]
    assert domain.ids == ("cat/z.png", *linked)
    assert domain.labels.tolist() == [0, 0, 0, 0, 1, 2, 2, 2]
    assert domain.samples.take(torch.arange(8)).shape == (8, 3, 8, 8)


def test_links_that_lead_back_and_second_links_to_a_folder_add_nothing(tmp_path):
    for name in ("pets/cat/z.png", "pets/cat/sub/a.png", "pets/dog/d.png", "store/b.png"):
        save(tmp_path / name)
    links = {"here": ".", "up": "..", "top": "/", "sub/back": "..", "again": "sub", "one": "../../store", "two": "one"}
    for name, goal in links.items():
        (tmp_path / "pets/cat" / name).symlink_to(goal)
    (tmp_path / "store/back").symlink_to(tmp_path / "pets/cat")  # a cycle through a folder elsewhere
    (tmp_path / "store/round").symlink_to("round")  # a link to itself
    domain = image_folder(tmp_path / "pets", size=8)
    assert domain.ids == ("cat/z.png", "cat/sub/a.png", "cat/one/b.png", "dog/d.png")


def test_names_that_are_no_text_become_text(tmp_path):
    """Linux allows folder names of any bytes; fonts, JSON and terminals do not."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        save(folder / os.fsdecode(b"th\xe9/a.png"))
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    save(folder / "milk/a.png")
    domain = image_folder(folder, size=8)
    assert domain.name == "caf\\udce9"
    assert domain.class_names == ("milk", "th\\udce9")
    assert image_folder(folder, domain.class_names, size=8).labels.tolist() == domain.labels.tolist() == [0, 1]
    assert domain.samples.take(torch.arange(2)).shape == (2, 3, 8, 8)


def test_names_of_folders_keep_to_a_line_and_give_terminals_no_orders(tmp_path):
    for name in ("lap\ntop", "\x1b[31mred", "bïke 自行车\u3000x"):
        save(tmp_path / "pets" / name / "a.png")
    assert image_folder(tmp_path / "pets", size=8).class_names == ("\\x1b[31mred", "bïke 自行车\u3000x", "lap\\ntop")


def test_a_folder_of_bad_images_only_is_an_error(tmp_path, noise):
    damaged(tmp_path / "bad", noise)
    with (
        pytest.warns(BadImageWarning),
        pytest.raises(ValueError, match="none of the 5 image files can be decoded"),
    ):
        image_folder(tmp_path / "bad")


def test_folders_that_are_no_domains_are_refused(tmp_path, pets):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        image_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no images; accepted are folder/class/image or folder/image"):
        image_folder(tmp_path / "empty")
    (pets / "owl").mkdir()
    with pytest.raises(ValueError, match="no images in the class folder 'owl'; remove or fill"):
        image_folder(pets)
    (pets / "owl").rmdir()
    save(pets / "stray.png")
    with pytest.raises(ValueError, match=r"holds 1 images of its own \(first: stray.png\) beside class folders"):
        image_folder(pets)


def test_a_domain_of_one_image_can_be_read(tmp_path):
    save(tmp_path / "one" / "cat" / "a.png")
    assert len(image_folder(tmp_path / "one", size=8)) == 1


def test_class_folders_are_the_same_class_whichever_system_named_them(tmp_path):
    one, two = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))
    for folder in (f"here/{one}", "here/dog", f"there/{two}", "there/dog"):
        save(tmp_path / folder / "1.png")
    here, there = (image_folder(tmp_path / name, size=8) for name in ("here", "there"))
    assert here.class_names == there.class_names == (one, "dog")
    assert image_folder(tmp_path / "there", ["dog", two], size=8).labels.tolist() == [1, 0]
    assert there.ids[0] == f"{two}/1.png"  # which is where it lies


@pytest.mark.parametrize("names", [("caf\u00e9", "cafe\u0301"), ("a\n", "a\\n")])
def test_two_class_folders_that_read_alike_are_refused(tmp_path, names):
    for name in (*names, "dog"):
        save(tmp_path / name / "1.png")
    with pytest.raises(ValueError, match=r"has two class folders that read '.*'; join them, or rename one"):
        image_folder(tmp_path, size=8)
