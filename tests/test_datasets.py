"""Data sets: their content, the folders searched, and the leftovers of a damaged or broken
source."""

import dataclasses
import gzip
import hashlib
import os
import pickle
import shutil
import socket
import tarfile
from pathlib import Path

import numpy
import pytest
from PIL import Image
from scipy.ndimage import binary_dilation
from scipy.spatial import Delaunay

from benchbook import datasets
from benchbook.datasets import sources
from benchbook.judging import verdicts
from benchbook.machine import context
from benchbook.studies.charts import figures
from benchbook.studies.experiments.process import Process
from made.fakes import CPU
from made.rows import make_row, make_rows
from made.sites import serve

WHOLE_MNIST = sources.PUBLISHED["mnist"]
DATA = Path(
    os.environ.get("BENCHBOOK_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
)
LABELS = "t10k-labels-idx1-ubyte"
PIXELS = numpy.random.default_rng(0).integers(0, 256, 8 * 784, dtype=numpy.uint8).tobytes()
# MNIST's files, of five training images and three of the test, and CIFAR-10's, of two images each.
FILES = {
    "train-images-idx3-ubyte": bytes(16) + PIXELS[: 5 * 784],
    "train-labels-idx1-ubyte": bytes(8) + bytes([5, 0, 4, 1, 9]),
    "t10k-images-idx3-ubyte": bytes(16) + PIXELS[5 * 784 :],
    LABELS: bytes(8) + bytes([7, 2, 1]),
}
PACKED = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in FILES.items()}
COLOURS = (numpy.arange(2 * 3072).reshape(2, 3072) // 32 % 256).astype(numpy.uint8)
BATCHES = {
    name: pickle.dumps({b"data": COLOURS, b"labels": [number, 9 - number]})
    for number, name in enumerate(sources.PUBLISHED["cifar10"].files)
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return an empty cache; data sets have the few images above, and no server answers at their
    addresses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BENCHBOOK_DATA", raising=False)
    for name in sources.PUBLISHED:
        publish_as(monkeypatch, name, address="http://127.0.0.1:1/{}")
    publish_as(monkeypatch, "mnist", files=checksums(FILES))
    publish_as(monkeypatch, "cifar10", files=checksums(BATCHES))
    return tmp_path / "cache" / "benchbook"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Serve a folder as the source of MNIST and CIFAR-10; return it. Files below `broken/` break
    off in the middle."""
    folder = tmp_path / "site"
    write(folder, PACKED)
    write(folder / "broken", PACKED)
    write(tmp_path / "cifar-10-batches-py", BATCHES)
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    archive = hashlib.md5((folder / "cifar.tar.gz").read_bytes()).hexdigest()
    with serve(folder) as address:
        publish_as(monkeypatch, "mnist", address=address + "{}.gz")
        publish_as(monkeypatch, "cifar10", address=address + "cifar.tar.gz", archive=archive)
        yield folder


def publish_as(monkeypatch, name, **changes):
    """Change attributes of a published data set."""
    monkeypatch.setitem(
        sources.PUBLISHED, name, dataclasses.replace(sources.PUBLISHED[name], **changes)
    )


def checksums(files):
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def contents(folder):
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def test_digits_are_scikit_learns_at_mnists_size_and_every_sixth_is_a_test_image():
    file = Path(datasets.__file__).with_name("digits.csv.gz")
    assert (
        hashlib.sha256(file.read_bytes()).hexdigest().startswith("09f66e6debdee2cd")
    )  # scikit-learn 1.9.1's file
    *_, target = numpy.loadtxt(file, delimiter=",").T
    digits = datasets.load("digits")
    assert digits.name == "digits-28px"
    assert (digits.train_images.shape, digits.test_images.shape) == ((1497, 28, 28), (300, 28, 28))
    assert digits.test_labels.tolist() == target[::6].tolist()
    assert numpy.delete(target, numpy.s_[::6]).tolist() == digits.train_labels.tolist()


def test_a_data_root_that_is_no_folder_is_refused(tmp_path):
    for name in ("mnist", "digits"):
        with pytest.raises(ValueError, match=r"data_root '.*absent' is not a folder"):
            datasets.load(name, str(tmp_path / "absent"), allow_embedded=True)


def test_mnists_own_files_have_the_checksums_of_the_list():
    if not all((DATA / "mnist" / name).is_file() for name in PACKED):
        pytest.skip(
            "MNIST's .gz files are not in BENCHBOOK_DATA, nor in shared/data beside the project"
        )
    mnist = WHOLE_MNIST.load(str(DATA))
    assert (len(mnist.train_images), len(mnist.test_images)) == (60_000, 10_000)


@pytest.mark.parametrize(
    ("variable", "named", "folder", "files"),
    [
        *(
            ("", ".", folder, files)
            for folder in ("MNIST/raw", "mnist", ".")
            for files in (FILES, PACKED)
        ),
        ("BENCHBOOK_DATA", ".", "mnist", FILES),
        ("XDG_CACHE_HOME", ".", "benchbook/mnist", FILES),
        # One level too deep.
        ("BENCHBOOK_DATA", "MNIST", "MNIST/raw", FILES),
        ("BENCHBOOK_DATA", "mnist", "mnist", PACKED),
        # Kaggle's.
        (
            "BENCHBOOK_DATA",
            "archive",
            "archive",
            {name.replace("-idx", ".idx"): FILES[name] for name in FILES},
        ),
        ("BENCHBOOK_DATA", "cifar-10-batches-py", "cifar-10-batches-py", BATCHES),
    ],
)
def test_files_are_found_in_every_place_layout_and_depth(
    tmp_path, monkeypatch, variable, named, folder, files
):
    write(tmp_path / folder, files)
    monkeypatch.chdir(tmp_path)
    name, labels = ("cifar10", [5, 4]) if files is BATCHES else ("mnist", [7, 2, 1])
    for root in (named, str(tmp_path / named)):
        if variable:
            monkeypatch.setenv(variable, root)
        # What is there is preferred to what stands in.
        found = datasets.load(name, "" if variable else root, allow_embedded=True)
        assert (found.name, found.test_labels.tolist()) == (name, labels)


def test_an_archive_alone_is_read_where_it_is(site, cache):
    assert datasets.load("cifar10", str(site)).test_labels.tolist() == [5, 4]
    assert contents(cache) == []  # nothing was downloaded


@pytest.mark.parametrize(("name", "used"), [("mnist", "digits-28px"), ("digits", "digits-28px")])
def test_rows_and_verdict_say_what_stands_in_for_a_data_set(record, name, used):
    process = Process({"dataset": name, "allow_embedded": True}, CPU, record)
    process.load(datasets.load, name)
    settings = process.run.settings_with()
    assert settings == ({} if name == "digits" else {"replaced": {"mnist": "digits-28px"}})
    rows = make_rows([make_row(index=index, dataset=used, settings=settings) for index in range(6)])
    [point] = verdicts.summarise(rows).to_dict("records")
    said = "8 x 8 scans of digits in place of MNIST"
    assert str(point["verdict"]).startswith(f"changed: {said}" if settings else "too few processes")
    assert figures.outcome(point) == "ok"  # a label names the data set


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content, packed: {LABELS: content[:-1]},
        lambda content, packed: {LABELS: content[:9] + bytes([content[9] ^ 1]) + content[10:]},
        lambda content, packed: {f"{LABELS}.gz": packed[:-2]},
        lambda content, packed: {f"{LABELS}.gz": b"<html>not found</html>"},
    ],
)
def test_a_damaged_copy_is_passed_over_and_what_differs_is_named(
    tmp_path, monkeypatch, capsys, damage, alone
):
    damaged = damage(FILES[LABELS], PACKED[f"{LABELS}.gz"])
    folder = write(tmp_path / "root" / "mnist", (FILES if LABELS in damaged else PACKED) | damaged)
    if alone:
        with pytest.raises(
            datasets.DatasetUnavailable, match=f"{folder}: missing or damaged: {LABELS}; download"
        ):
            datasets.load("mnist", str(tmp_path / "root"))
    else:
        monkeypatch.setenv("BENCHBOOK_DATA", str(write(tmp_path / "intact", FILES)))
        assert datasets.load("mnist", str(tmp_path / "root")).test_labels.tolist() == [7, 2, 1]
    assert capsys.readouterr().out == f"Skipped {folder}: missing or damaged: {LABELS}.\n"


@pytest.mark.parametrize(
    ("name", "before", "expected"),
    [
        *[
            ("mnist", before, ["MNIST", "raw", *PACKED])
            for before in ("nothing", "another download", "a damaged copy")
        ],
        ("cifar10", "nothing", ["cifar-10-batches-py", *BATCHES]),
    ],
)
def test_a_download_lands_in_the_cache_and_is_not_repeated(site, cache, name, before, expected):
    other = cache / f"benchbook-{2**22 + 1}-live"  # of another computer that shares the cache
    if before == "another download":
        other.mkdir(parents=True)
        expected = [*expected, other.name]
    elif before == "a damaged copy":
        write(cache / "MNIST" / "raw", FILES | {LABELS: b""})
    for _ in range(2):
        assert datasets.load(name).name == name
        shutil.rmtree(site, ignore_errors=True)
    assert contents(cache) == sorted(expected)


DAMAGED = {
    "empty": ({f"{LABELS}.gz": b""}, "", "do not have the published checksums"),
    "a page": (
        {f"{LABELS}.gz": b"<html>not here</html>"},
        "",
        "do not have the published checksums",
    ),
    "another file": (
        {f"{LABELS}.gz": gzip.compress(bytes(100))},
        "",
        "do not have the published checksums",
    ),
    "cut short": ({}, "broken/", "download failed"),
    "not there": ({}, "nowhere/", "404"),
}


@pytest.mark.parametrize(("files", "folder", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_download_that_is_not_the_data_set_is_unavailable_and_leaves_nothing(
    site, cache, monkeypatch, files, folder, message
):
    write(site, files)
    address = sources.PUBLISHED["mnist"].address.replace("{}", folder + "{}")
    publish_as(monkeypatch, "mnist", address=address)
    with pytest.raises(datasets.DatasetUnavailable, match=message):
        datasets.load("mnist")
    assert contents(cache) == []


def test_another_archive_is_not_unpacked(site, cache):
    with tarfile.open(site / "cifar.tar.gz", "w:gz") as archive:
        archive.add(site.parent / "cifar-10-batches-py", "../outside")
    with pytest.raises(datasets.DatasetUnavailable, match="hash"):
        datasets.load("cifar10")
    assert contents(cache.parent) == ["benchbook"]


@pytest.mark.parametrize("folder", ["", "..", "a/b"])
def test_a_download_takes_the_place_of_one_folder_of_the_cache_alone(cache, folder):
    (cache / "kept").mkdir(parents=True)
    with pytest.raises(ValueError, match="folder of the cache"), sources.download(folder):
        pass
    assert contents(cache) == ["kept"]


def test_a_source_that_stalls_is_given_up_and_leaves_nothing(cache, monkeypatch):
    monkeypatch.setattr(sources, "STALLED_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        publish_as(monkeypatch, "mnist", address=f"http://127.0.0.1:{silent.getsockname()[1]}/{{}}")
        with pytest.raises(datasets.DatasetUnavailable, match="timed out"):
            datasets.load("mnist")
    assert contents(cache) == []


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize(
    ("name", "stand_in"),
    [
        ("mnist", "digits-28px"),
        ("cifar10", "shapes-32px"),
        ("tinyshakespeare", "tinyshakespeare-excerpt"),
    ],
)
def test_what_is_embedded_stands_in_where_allowed_under_its_own_name(
    tmp_path, monkeypatch, capsys, name, stand_in, writable
):
    if not writable:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(datasets.DatasetUnavailable, match="download failed"):
        datasets.load(name)
    assert datasets.load(name, allow_embedded=True).name == stand_in
    said = capsys.readouterr()
    assert f"{name} is unavailable (download failed: " in said.out
    assert said.err == ""  # a notebook shows it as a fault
    assert "Pool(" not in said.out


def test_cifar10_is_read_with_channels_last_and_its_own_split(tmp_path):
    write(tmp_path / "cifar-10-batches-py", BATCHES)
    data = datasets.load("cifar10", str(tmp_path))
    assert (data.name, data.train_images.shape, data.test_images.shape) == (
        "cifar10",
        (10, 32, 32, 3),
        (2, 32, 32, 3),
    )
    assert data.train_labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert data.test_labels.tolist() == [5, 4]
    # The file's 32 reds of the first line come first; green begins 1024 bytes later.
    assert data.train_images[0, 0].tolist() == [[0, 32, 64]] * 32
    assert data.train_images[0, 1, 0].tolist() == [1, 33, 65]


def test_a_text_is_numbered_and_split(tmp_path, monkeypatch):
    content = {"input.txt": b"to be or not to be\n" * 10}
    write(tmp_path / "tinyshakespeare", content)
    publish_as(monkeypatch, "tinyshakespeare", files=checksums(content))
    text = datasets.load("tinyshakespeare", str(tmp_path))
    assert (text.name, text.characters, len(text.train), len(text.test)) == (
        "tinyshakespeare",
        "\n benort",
        171,
        19,
    )
    assert text.train[:5].tolist() == [7, 5, 1, 2, 3]
    assert datasets.load("excerpt").beginning(14) == "First Citizen:"


def picture_folder(folder, test="test", suffix=".png"):
    """Write two images per class and part: red is 100 in ant and 200 in bee, and 40 more in each
    second image."""
    for part in ("train", test):
        for name, red in {"ant": 100, "bee": 200}.items():
            (folder / part / name).mkdir(parents=True)
            for number in range(2):
                colour = (red + 40 * number, 0, 0)
                Image.new("RGB", (6, 4), colour).save(folder / part / name / f"{number}{suffix}")
    return folder


@pytest.mark.parametrize(
    ("test", "suffix", "name"),
    [
        ("test", ".png", "insects-png"),
        ("val", ".jpeg", "insects-jpeg"),
        ("test", ".jpg", "insects-jpeg"),
    ],
)
def test_an_image_folder_becomes_arrays_named_after_itself_and_its_format(
    tmp_path, test, suffix, name
):
    data = datasets.load("image_folder", str(picture_folder(tmp_path / "insects", test, suffix)))
    assert (data.name, data.train_images.shape) == (name, (4, 4, 6, 3))
    assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 0, 1, 1]
    for count, labels in (
        (0, [0, 0, 1, 1]),
        (2, [0, 1]),
        (9, [0, 0, 1, 1]),
    ):  # of all classes of a sorted folder
        assert data.with_tests(count).test_labels.tolist() == labels
    for images in (data.train_images, data.test_images):
        assert images[:, 0, 0, 0].tolist() == pytest.approx(
            [100, 140, 200, 240], abs=2
        )  # JPEG rounds


def test_image_folders_that_make_no_sense_are_refused(tmp_path):
    def refused(message, data_root):
        with pytest.raises(ValueError, match=message):
            datasets.load("image_folder", str(data_root))

    refused("data_root ''; allowed for image_folder", "")
    (tmp_path / "empty").mkdir()
    refused("empty has no folder train", tmp_path / "empty")
    (tmp_path / "empty" / "train" / "ant").mkdir(parents=True)
    (tmp_path / "empty" / "train" / "list.txt").touch()
    refused("empty/train has no images; allowed: a folder per class", tmp_path / "empty")
    other = picture_folder(tmp_path / "other")
    shutil.rmtree(other / "test" / "bee")
    refused(r"classes in test \['ant'\]; allowed: those in train, \['ant', 'bee'\]", other)
    unequal = picture_folder(tmp_path / "unequal")
    Image.new("RGB", (5, 4)).save(unequal / "train" / "bee" / "2.png")
    refused(r"have the shapes \[\(4, 5, 3\), \(4, 6, 3\)\]; allowed: one shape", unequal)


def test_a_collection_is_imagenets_folder_a_folder_or_arrays(tmp_path):
    with pytest.raises(datasets.DatasetUnavailable, match="no folder imagenet/"):
        datasets.collect("imagenet", str(tmp_path))
    folder = picture_folder(tmp_path / "imagenet", "val")
    Image.new("L", (30, 20), 200).save(folder / "train" / "bee" / "2.png")
    found = datasets.collect("imagenet", str(folder))
    assert datasets.collect("imagenet", str(tmp_path)).num_samples == found.num_samples
    assert (found.name, found.num_classes, found.num_samples) == ("imagenet", 2, 5)
    assert found.test.labels.tolist() == [0, 0, 1, 1]
    assert (found.train.open(4).size, found.train.open(4).mode) == ((30, 20), "RGB")
    assert datasets.collect("image_folder", str(folder)).test.open(3).getpixel((0, 0)) == (
        240,
        0,
        0,
    )
    assert datasets.collect("shapes").train.open(0).size == (32, 32)


def test_shapes_are_balanced_the_same_each_time_and_their_test_images_are_others():
    first, again = datasets.shapes(20, 10), datasets.shapes(20, 10)
    assert first.name == "shapes-32px"
    assert (first.train_images == again.train_images).all()
    assert first.train_images.shape == (200, 32, 32, 3)
    assert numpy.bincount(first.train_labels).tolist() == [20] * 10
    assert not (first.test_images[:100] == first.train_images[:100]).all(axis=(1, 2, 3)).any()
    assert not (datasets.shapes(20, 10, seed=1).train_images == first.train_images).all()


@pytest.mark.parametrize(("size", "seed"), [(512, 42), (128, 7)])
def test_triangles_have_the_corners_and_colours_of_the_articles_generator(size, seed):
    random = numpy.random.RandomState(seed)
    corners, colours = random.randint(20, 492, (12, 3, 2)), random.randint(128, 256, (12, 3))
    data = datasets.triangles(9, 3, size, seed)
    assert (data.name, len(data.train_images)) == (f"triangles-{size}px", 9)
    images = numpy.concatenate([data.train_images, data.test_images])
    masks = numpy.concatenate([data.train_labels, data.test_labels])
    numpy.testing.assert_array_equal(masks, images > 0)
    greys = 0.299 * colours[:, 0] + 0.587 * colours[:, 1] + 0.114 * colours[:, 2]
    numpy.testing.assert_allclose(images.max(axis=(1, 2)), greys, atol=0.5)
    numpy.testing.assert_array_equal(images, masks * images.max(axis=(1, 2), keepdims=True))
    pixels = numpy.indices((size, size)).T  # a pixel's place to the right and down
    for mask, points in zip(masks == 1, corners * size / 512, strict=True):
        inside = Delaunay(numpy.rint(points)).find_simplex(pixels) == 0
        assert mask[inside].all()
        assert (
            mask[~binary_dilation(inside)].sum() < 50
        )  # of corners so sharp that no pixel's middle is inside


def test_a_download_that_failed_is_not_tried_again_until_a_notebook_begins_anew(
    monkeypatch, tmp_path
):
    tried = []

    def fetch(address, *rest):
        tried.append(address)
        raise OSError("no network")

    monkeypatch.setattr(sources, "fetch", fetch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BENCHBOOK_DATA", raising=False)
    for count in (1, 1, 2):
        if count == 2:  # as `notebook.begin` does
            context.change(failed_downloads={})
        with pytest.raises(sources.DatasetUnavailable, match="download failed: no network"):
            sources.PUBLISHED["tinyshakespeare"].load()
        assert len(tried) == count
