"""Data sets: what they hold, where they are looked for, and what a damaged or broken source leaves behind."""

import dataclasses
import gzip
import hashlib
import os
import pickle
import shutil
import socket
import tarfile
import zipfile
from pathlib import Path

import numpy
import pytest
from PIL import Image

from benchbook.studies import datasets
from benchbook.studies.datasets import sources
from sites import serve

FILES = list(sources.PUBLISHED["mnist"].files)
LABELS = "t10k-labels-idx1-ubyte"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return an empty cache; nothing else is looked into but what a test names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BENCHBOOK_DATA", raising=False)
    return tmp_path / "cache" / "benchbook"


@pytest.fixture(scope="session")
def packed():
    """Return a folder with MNIST's four files as .gz."""
    roots = [Path(__file__).resolve().parents[2] / "shared" / "data", Path(os.environ.get("BENCHBOOK_DATA", "none"))]
    for folder in (root / "mnist" for root in roots):
        if all((folder / f"{name}.gz").is_file() for name in FILES):
            return folder
    pytest.skip("MNIST's .gz files are not in shared/data beside the project, nor in BENCHBOOK_DATA")


@pytest.fixture(scope="session")
def unpacked(packed, tmp_path_factory):
    """Return a folder with MNIST's four files."""
    folder = tmp_path_factory.mktemp("unpacked")
    for name in FILES:
        (folder / name).write_bytes(gzip.decompress((packed / f"{name}.gz").read_bytes()))
    return folder


@pytest.fixture
def no_source(monkeypatch):
    """Make every download fail: nobody listens at the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}/"
    for name in sources.PUBLISHED:
        publish_as(monkeypatch, name, address=nobody)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Serve an empty folder as the source of MNIST; return it."""
    folder = tmp_path / "site"
    folder.mkdir()
    with serve(folder) as address:
        publish_as(monkeypatch, "mnist", address=address)
        yield folder


def publish_as(monkeypatch, name, **changes):
    """Change what is known of a published data set."""
    monkeypatch.setitem(sources.PUBLISHED, name, dataclasses.replace(sources.PUBLISHED[name], **changes))


def publish(packed, site, monkeypatch):
    """Put MNIST's packed files on a site; they are packed otherwise than the published ones."""
    for name in FILES:
        shutil.copyfile(packed / f"{name}.gz", site / f"{name}.gz")
    checksums = {f"{name}.gz": hashlib.md5((site / f"{name}.gz").read_bytes()).hexdigest() for name in FILES}
    publish_as(monkeypatch, "mnist", archives=checksums)


def link(files, folder):
    """Link a folder's files into another; a test may then replace one of them."""
    folder.mkdir(parents=True)
    for file in files.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def replace(path, content):
    path.unlink()
    path.write_bytes(content)


def contents(folder):
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def test_digits_are_scikit_learns_at_mnists_size_and_every_sixth_is_a_test_image():
    from sklearn.datasets import load_digits

    digits, source = datasets.load("digits"), load_digits()
    assert digits.name == "digits-28px"
    assert (digits.train_images.shape, digits.test_images.shape) == ((1497, 28, 28), (300, 28, 28))
    assert digits.train_images.dtype == digits.test_images.dtype == numpy.uint8
    assert digits.train_labels.dtype == digits.test_labels.dtype == numpy.int64
    assert digits.train_images.max() == 255
    assert digits.test_labels.tolist() == source.target[::6].tolist()
    assert numpy.delete(source.target, numpy.s_[::6]).tolist() == digits.train_labels.tolist()
    brightness = source.images[::6].mean(axis=(1, 2)) * 255 / 16
    assert numpy.abs(digits.test_images.mean(axis=(1, 2)) - brightness).max() < 8
    assert numpy.ptp(brightness) > 50  # so that images in another order would not pass


def test_an_unknown_name_is_refused_with_those_that_exist():
    with pytest.raises(
        ValueError, match="unknown data set 'fashion'; allowed: mnist, cifar10, image_folder, digits, shapes"
    ):
        datasets.load("fashion")


@pytest.mark.parametrize("name", ["mnist", "digits"])
def test_a_data_root_that_is_not_a_folder_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"data_root '.*absent' is not a folder"):
        datasets.load(name, str(tmp_path / "absent"), allow_embedded=True)


def test_mnist_has_the_counts_and_the_mean_that_are_known_of_it(packed):
    mnist = datasets.load("mnist", str(packed.parent))
    assert mnist.name == "mnist"
    assert mnist.train_images.shape == (60_000, 28, 28)
    assert mnist.test_images.shape == (10_000, 28, 28)
    assert mnist.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert numpy.bincount(mnist.train_labels).tolist() == counts
    # The constants with which everyone normalises it.
    assert mnist.train_images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert mnist.train_images.std() / 255 == pytest.approx(0.3081, abs=5e-5)


@pytest.mark.parametrize(
    ("variable", "layout", "form"),
    [
        *(("", layout, form) for layout in ("MNIST/raw", "mnist", ".") for form in ("unpacked", "packed")),
        ("BENCHBOOK_DATA", "mnist", "unpacked"),
        ("XDG_CACHE_HOME", "benchbook/mnist", "unpacked"),
    ],
)
def test_mnist_is_found_in_every_place_and_layout(request, tmp_path, monkeypatch, variable, layout, form):
    root = tmp_path / "root"
    link(request.getfixturevalue(form), root / layout)
    if variable:
        monkeypatch.setenv(variable, str(root))
        root = tmp_path / "empty"
        root.mkdir()
    mnist = datasets.load("mnist", str(root), allow_embedded=True)  # what is there is preferred to what stands in
    assert (mnist.name, mnist.test_labels[:3].tolist()) == ("mnist", [7, 2, 1])


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("form", "damage"),
    [
        ("unpacked", lambda content: content[:-1]),
        ("unpacked", lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:]),
        ("packed", lambda content: content[:2000]),
        ("packed", lambda content: b"<html>not found</html>"),
    ],
)
def test_a_damaged_copy_is_passed_over_and_what_differs_is_named(
    request, unpacked, tmp_path, monkeypatch, no_source, capsys, form, damage, alone
):
    folder = link(request.getfixturevalue(form), tmp_path / "root" / "mnist")
    bad = folder / (LABELS if form == "unpacked" else f"{LABELS}.gz")
    replace(bad, damage(bad.read_bytes()))
    if alone:
        with pytest.raises(datasets.DatasetUnavailable):
            datasets.load("mnist", str(tmp_path / "root"))
    else:
        monkeypatch.setenv("BENCHBOOK_DATA", str(unpacked))
        mnist = datasets.load("mnist", str(tmp_path / "root"))
        assert mnist.test_labels.tolist() == list((unpacked / LABELS).read_bytes()[8:])
    said = f"{folder} is passed over: {LABELS} differ from MNIST's checksums.\n" * (form == "unpacked")
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("before", ["nothing", "a killed download", "a damaged copy"])
def test_a_download_lands_in_the_cache_and_is_not_repeated(packed, unpacked, site, cache, monkeypatch, before):
    if before == "a killed download":
        (cache / f"benchbook-{2**22 + 1}-left").mkdir(parents=True)  # Linux numbers processes up to 2**22
    elif before == "a damaged copy":
        replace(link(unpacked, cache / "MNIST" / "raw") / LABELS, b"")
    publish(packed, site, monkeypatch)
    for _ in range(2):
        assert datasets.load("mnist").train_labels[:3].tolist() == [5, 0, 4]
        shutil.rmtree(site, ignore_errors=True)
    assert contents(cache) == sorted(["MNIST", "raw", *(f"{name}.gz" for name in FILES)])


BAD = gzip.compress(bytes(100))  # no MNIST, whatever its checksum; it holds the time, which no test's name may
DAMAGED = {
    "empty": (b"", False, "", "hash"),
    "a page": (b"<html>not here</html>", False, "", "hash"),
    "another file": (BAD, True, "", "do not have the published checksums"),
    "cut short": (None, False, "broken/", "download failed"),
    "not there": (None, False, "nowhere/", "404"),
}


@pytest.mark.parametrize(("content", "own_checksum", "folder", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_download_that_is_not_the_data_set_is_unavailable_and_leaves_nothing(
    packed, site, cache, monkeypatch, content, own_checksum, folder, message
):
    """`broken/` is what a test's site breaks off in the middle."""
    place = site / folder
    if folder != "nowhere/":
        place.mkdir(exist_ok=True)
        publish(packed, place, monkeypatch)
    if content is not None:
        (site / f"{LABELS}.gz").write_bytes(content)
    checksums = sources.PUBLISHED["mnist"].archives
    if own_checksum:
        checksums = checksums | {f"{LABELS}.gz": hashlib.md5(content).hexdigest()}
    publish_as(monkeypatch, "mnist", address=sources.PUBLISHED["mnist"].address + folder, archives=checksums)
    with pytest.raises(datasets.DatasetUnavailable, match=message):
        datasets.load("mnist")
    assert contents(cache) == []


@pytest.mark.parametrize("folder", ["", "..", "a/b"])
def test_a_download_takes_the_place_of_one_folder_of_the_cache_alone(cache, folder):
    (cache / "kept").mkdir(parents=True)
    with pytest.raises(ValueError, match="folder of the cache"), sources.download(folder):
        pass
    assert contents(cache) == ["kept"]


def test_a_source_that_stalls_is_given_up_and_leaves_nothing(cache, monkeypatch):
    monkeypatch.setattr(sources, "STALLED_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        publish_as(monkeypatch, "mnist", address=f"http://127.0.0.1:{silent.getsockname()[1]}/")
        with pytest.raises(datasets.DatasetUnavailable, match="timed out"):
            datasets.load("mnist")
    assert contents(cache) == []


@pytest.mark.parametrize("writable", [True, False])
def test_digits_stand_in_where_allowed_under_their_own_name(tmp_path, monkeypatch, no_source, capsys, writable):
    if not writable:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(datasets.DatasetUnavailable, match="download failed"):
        datasets.load("mnist")
    assert datasets.load("mnist", allow_embedded=True).name == "digits-28px"
    printed = capsys.readouterr().out
    assert "download failed" in printed
    assert "using digits instead" in printed


@pytest.fixture
def batches(monkeypatch):
    """Return the contents of CIFAR-10's six files, two images in each, with their checksums put in place."""
    contents = {}
    for number, name in enumerate(sources.PUBLISHED["cifar10"].files):
        pixels = numpy.arange(2 * 3072).reshape(2, 3072) // 32 % 256
        contents[name] = pickle.dumps({b"data": pixels.astype(numpy.uint8), b"labels": [number, 9 - number]})
    checksums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    publish_as(monkeypatch, "cifar10", files=checksums)
    return contents


def write_batches(contents, root):
    folder = Path(root) / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def test_cifar10_is_read_with_channels_last_and_its_own_split(batches, tmp_path):
    write_batches(batches, tmp_path)
    data = datasets.load("cifar10", str(tmp_path))
    assert (data.name, data.train_images.shape, data.test_images.shape) == ("cifar10", (10, 32, 32, 3), (2, 32, 32, 3))
    assert data.train_labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert data.test_labels.tolist() == [5, 4]
    # The file's 32 reds of the first line come first; green begins 1024 bytes later.
    assert data.train_images[0, 0].tolist() == [[0, 32, 64]] * 32
    assert data.train_images[0, 1, 0].tolist() == [1, 33, 65]


def test_cifar10_with_a_flipped_byte_is_passed_over_and_shapes_stand_in(batches, tmp_path, no_source, capsys):
    write_batches(batches | {"test_batch": batches["test_batch"][:-1] + b"x"}, tmp_path)
    assert datasets.load("cifar10", str(tmp_path), allow_embedded=True).name == "shapes-32px"
    printed = capsys.readouterr().out
    assert "passed over: test_batch differ from CIFAR-10's checksums" in printed
    assert "using shapes instead" in printed


def test_a_download_of_cifar10_is_unpacked_into_the_cache(batches, cache, tmp_path, monkeypatch):
    write_batches(batches, tmp_path)
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    checksum = hashlib.md5((tmp_path / "cifar.tar.gz").read_bytes()).hexdigest()
    with serve(tmp_path) as address:
        publish_as(monkeypatch, "cifar10", address=address, archives={"cifar.tar.gz": checksum})
        assert datasets.load("cifar10").name == "cifar10"
    assert (cache / "cifar-10-batches-py" / "test_batch").is_file()
    assert [path.name for path in cache.iterdir()] == ["cifar-10-batches-py"]


def test_a_text_is_checked_numbered_and_split_and_its_beginning_stands_in(tmp_path, no_source, monkeypatch, capsys):
    (tmp_path / "tinyshakespeare").mkdir()
    file = tmp_path / "tinyshakespeare" / "input.txt"
    file.write_bytes(b"to be or not to be\n" * 10)
    stood_in = datasets.load_text("tinyshakespeare", str(tmp_path), allow_embedded=True)
    assert stood_in.name == "tinyshakespeare-excerpt"
    assert stood_in.beginning(14) == "First Citizen:"
    assert "input.txt differ from tiny Shakespeare's checksums" in capsys.readouterr().out
    publish_as(monkeypatch, "tinyshakespeare", files={"input.txt": hashlib.md5(file.read_bytes()).hexdigest()})
    text = datasets.load_text("tinyshakespeare", str(tmp_path))
    assert (text.name, text.characters, len(text.train), len(text.test)) == ("tinyshakespeare", "\n benort", 171, 19)
    assert text.train[:5].tolist() == [7, 5, 1, 2, 3]
    with pytest.raises(datasets.DatasetUnavailable, match="download failed"):
        datasets.load_text("tinyshakespeare")
    for load, name in ((datasets.load, "excerpt"), (datasets.load_text, "mnist")):
        with pytest.raises(ValueError, match=f"'{name}'; allowed: "):
            load(name)


def picture_folder(folder, test="test", suffix=".png", classes=("ant", "bee")):
    """Write two images a class and part: their red is 100 in ant, 200 in bee, one more in the second image."""
    for part in ("train", test):
        for name in classes:
            (folder / part / name).mkdir(parents=True)
            for number in range(2):
                colour = ({"ant": 100, "bee": 200}.get(name, 0) + number, 0, 0)
                Image.new("RGB", (6, 4), colour).save(folder / part / name / f"{number}{suffix}")
    return folder


@pytest.mark.parametrize("test", ["test", "val"])
def test_an_image_folder_becomes_arrays_named_after_itself_and_its_format(tmp_path, test):
    data = datasets.load("image_folder", str(picture_folder(tmp_path / "insects", test)))
    assert (data.name, data.train_images.shape) == ("insects-png", (4, 4, 6, 3))
    assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 0, 1, 1]
    assert data.test_images[:, 0, 0, 0].tolist() == [100, 101, 200, 201]


@pytest.mark.parametrize("inner", ["", "insects"])
def test_an_image_folder_is_read_from_an_archive_as_well(tmp_path, inner):
    folder = picture_folder(tmp_path / "all" / inner, suffix=".jpg")
    packed = shutil.make_archive(str(tmp_path / "insects"), "zip", tmp_path / "all")
    from_zip, from_folder = datasets.load("image_folder", packed), datasets.load("image_folder", str(folder))
    assert from_zip.name == "insects-jpeg"
    assert (from_zip.train_images == from_folder.train_images).all()


def test_image_folders_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(ValueError, match="data_root ''; allowed for image_folder"):
        datasets.load("image_folder")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty has no folder train"):
        datasets.load("image_folder", str(tmp_path / "empty"))
    other = picture_folder(tmp_path / "other")
    shutil.rmtree(other / "test" / "bee")
    with pytest.raises(ValueError, match=r"classes in test \['ant'\]; allowed: those in train, \['ant', 'bee'\]"):
        datasets.load("image_folder", str(other))
    unequal = picture_folder(tmp_path / "unequal")
    Image.new("RGB", (5, 4)).save(unequal / "train" / "bee" / "2.png")
    with pytest.raises(ValueError, match=r"bee/2.png is \(4, 5, 3\); allowed: \(4, 6, 3\)"):
        datasets.load("image_folder", str(unequal))


def test_the_subset_of_cifar10_keeps_a_name_of_its_own(tmp_path):
    """Of its 25,000 pictures every twentieth is read."""
    roots = [Path(__file__).resolve().parents[2] / "shared" / "data", Path(os.environ.get("BENCHBOOK_DATA", "none"))]
    archives = [root / "cifar10-subset.zip" for root in roots if (root / "cifar10-subset.zip").is_file()]
    if not archives:
        pytest.skip("cifar10-subset.zip is not in shared/data beside the project, nor in BENCHBOOK_DATA")
    few = tmp_path / "cifar10-subset.zip"
    with zipfile.ZipFile(archives[0]) as archive, zipfile.ZipFile(few, "w") as chosen:
        names = archive.namelist()
        assert len(names) == 25_000
        for name in names[::20]:
            chosen.writestr(name, archive.read(name))
    data = datasets.load("image_folder", str(few))
    assert (data.name, data.train_images.shape) == ("cifar10-subset-jpeg", (1_000, 32, 32, 3))
    assert numpy.bincount(data.test_labels).tolist() == [25] * 10


def test_shapes_are_balanced_the_same_each_time_and_their_test_images_are_others():
    first, again = datasets.shapes(20, 10), datasets.shapes(20, 10)
    assert first.name == "shapes-32px"
    assert (first.train_images == again.train_images).all()
    assert first.train_images.shape == (200, 32, 32, 3)
    assert numpy.bincount(first.train_labels).tolist() == [20] * 10
    assert not (first.test_images[:100] == first.train_images[:100]).all(axis=(1, 2, 3)).any()
    assert not (datasets.shapes(20, 10, seed=1).train_images == first.train_images).all()


def test_shapes_can_be_learnt_but_not_from_their_mean_colour():
    from sklearn.neighbors import KNeighborsClassifier

    data = datasets.shapes(100, 20)
    pixels = [images.reshape(len(images), -1).astype(float) for images in (data.train_images, data.test_images)]
    means = [images.mean(axis=(1, 2)) for images in (data.train_images, data.test_images)]
    learnt, coloured = (
        KNeighborsClassifier(5).fit(train, data.train_labels).score(test, data.test_labels)
        for train, test in (pixels, means)
    )
    assert learnt > 0.35  # chance is 0.1
    assert coloured < 0.35  # warm or cold alone tells five classes from five: 0.2, and a ring from a square a little
