"""docs/models.md is up to date with the cards and the results."""

from pathlib import Path

import pytest
from PIL import Image

import model_pages
from doap.evaluation.harness.result import Result, read_result
from doap.networks.card import DataSource
from result_tables import RESULTS

SOURCES = [DataSource(source="github:a/b", licence="CC0 1.0", photos=1200)]
NAMES = ("doap-demo-128", "doap-demo-256b")


@pytest.fixture
def measured() -> Result:
    cards = model_pages.shipped_cards()
    curves = {("dog", NAMES[0]): (61.04, 70.0), ("dog", NAMES[1]): (50.0, 49.0),
              ("harris-affine", NAMES[0]): (30.0, 31.0), ("harris-affine", NAMES[1]): (20.0, 10.0)}  # fmt: skip
    return Result(
        benchmark="extents",
        settings={"data": "val", "pairs": 148, "keypoints": 1000, "extents": [6.0, 8.5]},
        methods=[{"name": name, "sha256": cards[name].sha256} for name in NAMES],
        scores=[
            {"descriptor": name, "detector": detector, "extent": extent, "ap": ap}
            for (detector, name), values in curves.items()
            for extent, ap in ((8.5, values[1]), (6.0, values[0]))
        ],
    )


def test_the_page_is_up_to_date() -> None:
    assert model_pages.render_page() == model_pages.PAGE.read_text(encoding="utf-8"), "run python tools/model_pages.py"


def test_every_best_ap_of_the_extents_is_on_a_card() -> None:
    if not model_pages.EXTENTS.exists():
        pytest.skip("no extents were measured")
    cards = model_pages.shipped_cards()
    for path in (model_pages.EXTENTS, model_pages.EXTENTS_OF_TINY):
        result = read_result(path)
        for detector, curves in model_pages.curves_by_detector(result).items():
            for name, curve in curves.items():
                place = f"{detector} at extent {cards[name].extents[detector]:g}"
                figure = f"AP % on {result.settings['pairs']} validation pairs, {place}"
                assert cards[name].origin.figures[figure] == max(curve.values())


def test_the_best_extent_of_each_model_is_in_bold_and_drawn(measured: Result, tmp_path: Path) -> None:
    text = "\n".join(model_pages.render_extents(model_pages.EXTENTS, measured, model_pages.shipped_cards()))
    assert "over 148 image pairs" in text
    recorded = measured.model_copy(update={"settings": {**measured.settings, "pairs sha256": "0" * 64}})
    recorded_text = "\n".join(model_pages.render_extents(model_pages.EXTENTS, recorded, model_pages.shipped_cards()))
    assert recorded_text == text
    assert "| dog, extent | 6 | 8.5 |" in text
    assert "| doap-demo-128 | 61.0 | **70.0** |" in text
    assert "| doap-demo-256b | **50.0** | 49.0 |" in text
    assert "| doap-demo-256b | **20.0** | 10.0 |" in text
    partial = measured.model_copy(update={"scores": measured.scores[:-2] + measured.scores[-1:]})
    assert "| doap-demo-256b | **20.0** |  |" in "\n".join(
        model_pages.render_extents(model_pages.EXTENTS, partial, model_pages.shipped_cards())
    )
    model_pages.draw_extents(partial, model_pages.shipped_cards(), tmp_path / "partial.png")
    model_pages.draw_extents(measured, model_pages.shipped_cards(), tmp_path / "extents.png")
    with Image.open(tmp_path / "extents.png") as image:
        assert image.width > 1000


def test_extents_of_other_weights_are_refused(measured: Result) -> None:
    other = measured.model_copy(update={"methods": [{"name": NAMES[0], "sha256": "0" * 64}]})
    with pytest.raises(SystemExit, match=r"measured with other weights of doap-demo-128; run tools/extents\.py again"):
        model_pages.render_extents(model_pages.EXTENTS, other, model_pages.shipped_cards())


def test_models_trained_on_the_same_photos_share_a_table() -> None:
    card = model_pages.shipped_cards()[NAMES[0]]
    one = card.model_copy(update={"origin": card.origin.model_copy(update={"sources": SOURCES})})
    more = [*SOURCES, DataSource(source="debian:c", licence="GPL-2+", photos=7)]
    other = card.model_copy(update={"origin": card.origin.model_copy(update={"sources": more})})
    text = "\n".join(model_pages.render_photos({"a": one, "b": other, "c": one, "d": card}))
    assert text.count("| source | licence | photos |") == 2
    assert "`a`, `c`: 1,200 photos" in text
    assert "`b`: 1,207 photos" in text
    assert "| github:a/b | CC0 1.0 | 1,200 |" in text
    assert model_pages.render_photos({"d": card}) == []
    assert "1,207 of 2 sources: see [Photos](#photos)" in model_pages.render_card(NAMES[0], other)


def test_rows_of_shipped_models_are_taken_from_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all((RESULTS / f"{file}.json").exists() for file in model_pages.EVALUATIONS)
    monkeypatch.setattr(model_pages, "EVALUATIONS", {"oxford-dog": model_pages.EVALUATIONS["oxford-dog"]})
    text = "\n".join(model_pages.render_evaluation(["doap-128"]))
    rows = [line.split(" |")[0][2:] for line in text.splitlines() if line.startswith("| ")]
    assert sorted(rows[1:]) == ["doap-128", "rootsift", "sift"]
    assert model_pages.render_evaluation(["doap-129"]) == []


def test_photos_without_a_licence_are_counted_beside_the_licence() -> None:
    card = model_pages.shipped_cards()[NAMES[0]]
    assert model_pages.describe_licence({"d": card}) == "Licence of the weights: Apache-2.0."
    sources = [*SOURCES, DataSource(source="github:c/d", licence="no licence stated (data)", photos=800)]
    other = card.model_copy(update={"origin": card.origin.model_copy(update={"sources": sources})})
    assert model_pages.describe_licence({"a": other, "b": other, "d": card}) == (
        "Licence of the weights: Apache-2.0. 800 of the 2,000 training photos state no licence (`a`, `b`)."
    )
