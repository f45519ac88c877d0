"""MobileNetV2's weights and errors, the same in all frameworks; frameworks/ tests the networks."""

import h5py
import numpy
import pytest

from benchbook.datasets import DatasetUnavailable
from benchbook.studies.mobilenetv2_energy import weights as initial
from made.sites import serve

FILE = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_{}_no_top.h5"


@pytest.fixture(autouse=True)
def _no_download(monkeypatch, tmp_path):
    """A machine with no data, no cache and no network."""
    monkeypatch.delenv("BENCHBOOK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(initial, "ADDRESS", "http://127.0.0.1:1/{}")  # no server


def write_weights(path, arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, parts in arrays.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = [
                f"{name}/part_{number}:0" for number in range(len(parts))
            ]
            for number, part in enumerate(parts):
                group[f"{name}/part_{number}:0"] = part


def test_drawn_weights_have_the_networks_shapes_and_glorots_spread():
    drawn = initial.draw(10, 1)
    assert sum(part.size for parts in drawn.values() for part in parts) == 2_270_794
    assert len(initial.convolutions()) == 52
    kernel = drawn["Conv_1"][0]
    assert kernel.shape == (1, 1, 320, 1280)
    limit = (6 / (320 + 1280)) ** 0.5
    assert abs(kernel).max() == pytest.approx(limit, rel=1e-3)
    assert kernel.std() == pytest.approx(limit / 3**0.5, rel=0.01)
    depthwise = drawn["block_1_depthwise"][0]
    assert abs(depthwise).max() == pytest.approx((6 / (9 * (96 + 1))) ** 0.5, rel=0.02)
    assert [part[0] for part in drawn["bn_Conv1"]] == [1, 0, 0, 1]
    assert numpy.array_equal(kernel, initial.draw(10, 1)["Conv_1"][0])
    assert not numpy.array_equal(kernel, initial.draw(10, 2)["Conv_1"][0])


def test_trained_weights_are_found_by_image_size_and_take_a_new_head(tmp_path):
    trained = {name: [part + 1 for part in parts] for name, parts in initial.draw(1, 5).items()}
    write_weights(tmp_path / "data" / FILE.format(96), trained)
    write_weights(tmp_path / "cache" / "benchbook" / "mobilenet_v2_224" / FILE.format(224), trained)
    for size in (96, 224, 256):  # 256 takes those of 224
        kind, found = initial.choose("imagenet", 3, size, seed=7, data_root=str(tmp_path / "data"))
        assert kind == "imagenet"
        numpy.testing.assert_array_equal(found["Conv1"][0], trained["Conv1"][0])
        numpy.testing.assert_array_equal(
            found[initial.HEAD][0], initial.draw(3, 7)[initial.HEAD][0]
        )
    with pytest.raises(DatasetUnavailable, match="download failed"):
        initial.choose("imagenet", 3, 128, 7, str(tmp_path / "data"))


def test_weights_are_downloaded_into_the_cache_only_if_they_are_whole(tmp_path, monkeypatch):
    whole = initial.draw(1, 5)
    write_weights(tmp_path / "site" / FILE.format(160), whole)
    write_weights(
        tmp_path / "site" / FILE.format(96), whole | {"Conv_1": [whole["Conv_1"][0][..., :7]]}
    )
    with serve(tmp_path / "site") as address:
        monkeypatch.setattr(initial, "ADDRESS", address + "{}")
        for _ in range(2):  # the second time from the cache
            kind, found = initial.choose("imagenet", 3, 160, 7)
            assert kind == "imagenet"
            numpy.testing.assert_array_equal(found["Conv_1"][0], whole["Conv_1"][0])
            (tmp_path / "site" / FILE.format(160)).unlink(missing_ok=True)
        with pytest.raises(DatasetUnavailable, match=r"Conv_1 has \[\(1, 1, 320, 7\)\]"):
            initial.choose("imagenet", 3, 96, 7)
    assert not list((tmp_path / "cache").rglob(FILE.format(96)))


def test_random_weights_are_used_with_a_message_and_only_if_allowed(tmp_path, capsys):
    kind, found = initial.choose("imagenet", 10, 128, 1, allow_random=True)
    assert kind == "random"
    assert "using random ones instead" in capsys.readouterr().out
    numpy.testing.assert_array_equal(found["Conv1"][0], initial.draw(10, 1)["Conv1"][0])
    with pytest.raises(DatasetUnavailable, match="the file does not hold MobileNetV2's weights"):
        initial.read(b"no weights")
