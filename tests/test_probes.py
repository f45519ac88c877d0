"""Which settings of MobileNetV2 the paper profile measures."""

from benchbook.frameworks import devices
from benchbook.running import profiles


def test_the_articles_settings_and_learning_rates_are_in_the_paper_profile_and_every_large_size_is_a_point():
    points = [point.parameters for point in profiles.read("paper", "mobilenetv2_energy", "cpu")]
    mine = [point for point in points if point["framework"] == devices.installed()[0]]
    assert [point["image_size"] for point in mine if point["image_size"] > 128] == [160, 196, 224, 256]
    assert all(point["trainable"] for point in mine if point["image_size"] > 128)
    assert {(point["weights"], point["allow_random"], point["allow_embedded"]) for point in points} == {
        ("imagenet", False, False)
    }
    settings = {
        (point["batch_size"], point["image_size"], point["trainable"])
        for point in mine
        if point["variant"] == "reference" and point["image_size"] <= 128 and point["learning_rate"] == 5e-4
    }
    assert settings == {(batch, size, trained) for batch in (32, 64) for size in (96, 128) for trained in (False, True)}
    rates = {point["learning_rate"] for point in mine if point["num_windows"] == 10 and not point["trainable"]}
    assert rates == {5e-4, 1e-4, 1e-3}
