"""docs/models.md is what the cards and the results beside it give."""

from pathlib import Path

import pytest
from PIL import Image

import models
from doap.evaluation.result import Result, read_result
from doap.networks.registry import DataSource

SOURCES = [DataSource(source="github:a/b", licence="CC0 1.0", photos=1200)]
NAMES = ("doap-demo-128", "doap-demo-256b")


@pytest.fixture
def measured() -> Result:
    cards = models.shipped()
    curves = {("dog", NAMES[0]): (61.04, 70.0), ("dog", NAMES[1]): (50.0, 49.0),
              ("harris-affine", NAMES[0]): (30.0, 31.0), ("harris-affine", NAMES[1]): (20.0, 10.0)}  # fmt: skip
    return Result(
        benchmark="extents",
        settings={"data": "aside", "pairs": 148, "keypoints": 1000, "extents": [6.0, 8.5]},
        contenders=[{"name": name, "sha256": cards[name].sha256} for name in NAMES],
        scores=[
            {"descriptor": name, "detector": detector, "extent": extent, "ap": ap}
            for (detector, name), values in curves.items()
            for extent, ap in ((8.5, values[1]), (6.0, values[0]))
        ],
    )


def test_the_page_is_what_cards_and_results_give() -> None:
    assert models.page() == models.PAGE.read_text(encoding="utf-8"), "run python docs/models.py"


def test_every_figure_of_the_extents_is_on_a_card() -> None:
    if not models.EXTENTS.exists():
        pytest.skip("no extents were measured")
    cards = models.shipped()
    for detector, curves in models.by_detector(read_result(models.EXTENTS)).items():
        for name, curve in curves.items():
            called = f"AP % on validation pairs, {detector} at extent {cards[name].extents[detector]:g}"
            assert cards[name].origin.figures[called] == max(curve.values())


def test_the_best_extent_of_each_model_is_in_bold_and_drawn(measured: Result, tmp_path: Path) -> None:
    text = "\n".join(models.extents(measured, models.shipped()))
    assert "over 148 image pairs" in text
    assert "| dog, extent | 6 | 8.5 |" in text
    assert "| doap-demo-128 | 61.0 | **70.0** |" in text
    assert "| doap-demo-256b | **50.0** | 49.0 |" in text
    assert "| doap-demo-256b | **20.0** | 10.0 |" in text
    climbed = measured.model_copy(update={"scores": measured.scores[:-2] + measured.scores[-1:]})
    assert "| doap-demo-256b | **20.0** |  |" in "\n".join(models.extents(climbed, models.shipped()))
    models.draw_extents(climbed, models.shipped(), tmp_path / "climbed.png")
    models.draw_extents(measured, models.shipped(), tmp_path / "extents.png")
    with Image.open(tmp_path / "extents.png") as picture:
        assert picture.width > 1000


def test_extents_of_other_weights_are_refused(measured: Result) -> None:
    other = measured.model_copy(update={"contenders": [{"name": NAMES[0], "sha256": "0" * 64}]})
    with pytest.raises(SystemExit, match=r"is of other weights of doap-demo-128; run tools/extents\.py again"):
        models.extents(other, models.shipped())


def test_models_of_the_same_photos_share_a_table() -> None:
    card = models.shipped()[NAMES[0]]
    one = card.model_copy(update={"origin": card.origin.model_copy(update={"sources": SOURCES})})
    more = [*SOURCES, DataSource(source="debian:c", licence="GPL-2+", photos=7)]
    other = card.model_copy(update={"origin": card.origin.model_copy(update={"sources": more})})
    text = "\n".join(models.photos({"a": one, "b": other, "c": one, "d": card}))
    assert text.count("| source | licence | photos |") == 2
    assert "`a`, `c`: 1,200 photos" in text
    assert "`b`: 1,207 photos" in text
    assert "| github:a/b | CC0 1.0 | 1,200 |" in text
    assert models.photos({"d": card}) == []
    assert "1,207 of 2 sources: see [Photos](#photos)" in models.section(NAMES[0], other)


def test_rows_of_shipped_models_are_taken_from_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all((models.RESULTS / f"{file}.json").exists() for file in models.JUDGED)
    monkeypatch.setattr(models, "JUDGED", {"oxford-dog": models.JUDGED["oxford-dog"]})
    text = "\n".join(models.judged(["doap-128"]))
    rows = [line.split(" |")[0][2:] for line in text.splitlines() if line.startswith("| ")]
    assert sorted(rows[1:]) == ["doap-128", "rootsift", "sift"]
    assert models.judged(["doap-129"]) == []
