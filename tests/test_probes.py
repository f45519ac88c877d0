"""Which settings of MobileNetV2 the paper profile measures."""

from benchbook.frameworks import devices
from benchbook.running import profiles


def test_every_size_over_196_pixels_is_a_point_of_its_own():
    points = [point for point in profiles.read("paper", "mobilenetv2_energy") if point.parameters["image_size"] > 128]
    places = {(point.parameters["framework"], point.parameters["device"]) for point in points}
    sizes = sorted(point.parameters["image_size"] for point in points)
    assert sizes == sorted(size for size in (160, 196, 224, 256) for _ in places)
    assert len({point.name for point in points}) == len(points)
    assert all(point.parameters["trainable"] for point in points)
    assert {point.parameters["weights"] for point in points} == {"imagenet"}
    assert not any(point.parameters["allow_random"] or point.parameters["allow_embedded"] for point in points)


def test_the_articles_eight_settings_and_learning_rates_are_in_the_paper_profile():
    points = [point.parameters for point in profiles.read("paper", "mobilenetv2_energy", "cpu")]
    mine = [point for point in points if point["framework"] == devices.installed()[0]]
    settings = {
        (point["batch_size"], point["image_size"], point["trainable"])
        for point in mine
        if point["variant"] == "reference" and point["image_size"] <= 128 and point["learning_rate"] == 5e-4
    }
    assert settings == {(batch, size, trained) for batch in (32, 64) for size in (96, 128) for trained in (False, True)}
    rates = {point["learning_rate"] for point in mine if point["num_windows"] == 10 and not point["trainable"]}
    assert rates == {5e-4, 1e-4, 1e-3}
