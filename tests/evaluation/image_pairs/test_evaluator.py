from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from doap import DoapError, load
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.image_pairs import evaluator as evaluator_module
from doap.evaluation.image_pairs.evaluator import PairsEvaluator
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import score_pair
from doap.images.extraction import extract_patches
from doap.types import Frames, Grey
from support.sets.small_pairs import write_pair, write_sequence
from support.small_models import with_extents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_sequence(tmp_path / "pairs" / "a", 0)
    write_pair(tmp_path / "pairs" / "b", 3)
    return tmp_path / "pairs"


def ap_of_eval_pairs(folder: Path, cache: Path, name: str, extent: float | None) -> float:
    (method,) = open_methods([name], extent=extent, cache=DescriptorCache(cache), detector="dog")
    reader = PairReader("dog", 150)
    return float(np.mean([float(score_pair(reader.open(files), method)["ap"] or 0) for files in find_pairs(folder)]))


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_the_ap_is_that_of_eval_pairs(folder: Path, tmp_path: Path, name: str) -> None:
    calls: list[tuple[int, int]] = []
    evaluator = PairsEvaluator(folder, "dog", 150, [None, 4.0], progress=lambda *call: calls.append(call))
    assert calls == [(number, 6) for number in range(1, 7)]
    measures = evaluator.measure(load(name, fast=False))
    assert list(measures) == ["pairs", "pairs at own", "pairs at 4.0"]
    for extent, measure in ((None, "pairs at own"), (4.0, "pairs at 4.0")):
        expected = ap_of_eval_pairs(folder, tmp_path / "cache", name, extent)
        assert measures[measure] == pytest.approx(expected, abs=1e-6)
    assert measures["pairs"] == pytest.approx((measures["pairs at own"] + measures["pairs at 4.0"]) / 2)
    assert measures["pairs at own"] > measures["pairs at 4.0"] + 1


def test_the_extent_of_a_network_with_surroundings_is_that_of_the_centre(folder: Path, tmp_path: Path) -> None:
    evaluator, model = PairsEvaluator(folder, "dog", 150, [4.0]), load("doap-128", fast=False)
    measured = evaluator.measure(model)["pairs"]
    assert measured == pytest.approx(ap_of_eval_pairs(folder, tmp_path / "cache", "doap-128", 4.0), abs=1e-6)
    assert measured != evaluator.evaluate_at(model, 4.0).ap


def test_a_models_own_extent_is_that_of_the_detector(folder: Path, tmp_path: Path) -> None:
    model = load(with_extents(tmp_path / "mine.safetensors", dog=4.0), fast=False)
    evaluator = PairsEvaluator(folder, "dog", 150)
    assert evaluator.evaluate_at(model, None) == evaluator.evaluate_at(model, 4.0)
    assert evaluator.evaluate_at(model, 4.0).ap < evaluator.evaluate_at(model, 12.0).ap - 1


def test_a_function_detects_and_opencvs_keep_their_extents(folder: Path) -> None:
    model, orb = load("doap-demo-128", fast=False), cv2.ORB.create(150)
    evaluator = PairsEvaluator(folder, orb.detect, 150)
    assert evaluator.evaluate_at(model, None) == evaluator.evaluate_at(model, model.extent_for("orb"))
    view = evaluator.pairs[0].first
    points = {keypoint.pt for keypoint in orb.detect(view.image, None)}
    assert {tuple(map(float, centre)) for centre in view.frames[:, :, 2]} == points


def test_patches_are_extracted_once_for_all_models_and_images_described_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []

    def counting(image: Grey, frames: Frames, size: int, extent: float, device: str) -> NDArray[np.uint8]:
        calls.append(extent)
        return extract_patches(image, frames, size, extent, device)

    monkeypatch.setattr(evaluator_module, "extract_patches", counting)
    evaluator = PairsEvaluator(folder, "dog", 50)
    first = evaluator.measure(load("doap-demo-128", fast=False))
    assert list(first) == ["pairs"]
    assert len(calls) == 8  # six images of the sequence, two of the pair
    assert evaluator.measure(load("doap-demo-128", fast=False)) == first
    evaluator.measure(load("doap-demo-256b", fast=False))
    assert len(calls) == 8


def test_pairs_without_a_homography_are_evaluated_by_correct_matches(folder: Path, tmp_path: Path) -> None:
    plain = PairsEvaluator(folder, "dog", 50).measure(load("doap-demo-128", fast=False))
    write_pair(folder / "c", 1, "points.csv")
    evaluator = PairsEvaluator(folder, "dog", 50)
    assert (len(evaluator.pairs), len(evaluator.labelled)) == (6, 1)
    measures = evaluator.measure(load("doap-demo-128", fast=False))
    (method,) = open_methods(["doap-demo-128"], cache=DescriptorCache(tmp_path / "cache"), detector="dog")
    assert measures == {
        **plain,
        "correct": pytest.approx(score_pair(evaluator.labelled[0], method)["correct within 3 px"]),
    }
    assert 0 < measures["correct"] <= 100
    write_pair(tmp_path / "labelled" / "c", 1, "points.csv")
    with pytest.raises(DoapError, match="all pairs have labelled points only; AP needs") as caught:
        PairsEvaluator(tmp_path / "labelled", "dog", 50)
    assert "\n" not in str(caught.value)
