from pathlib import Path

import numpy as np
import pytest

from doap import DoapError, load
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.image_pairs import evaluator as module
from doap.evaluation.image_pairs.evaluator import PairsEvaluator
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import score
from support.small_models import with_extents
from support.small_pairs import write_pair, write_sequence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_sequence(tmp_path / "pairs" / "a", 0)
    write_pair(tmp_path / "pairs" / "b", 3)
    return tmp_path / "pairs"


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_the_ap_is_that_of_eval_pairs(folder: Path, tmp_path: Path, name: str) -> None:
    told: list[tuple[int, int]] = []
    judge = PairsEvaluator(folder, "dog", 150, [None, 4.0], progress=lambda *done: told.append(done))
    assert told == [(number, 6) for number in range(1, 7)]
    found = judge.measure(load(name))
    assert list(found) == ["pairs", "pairs at own", "pairs at 4.0"]
    for extent, called in ((None, "pairs at own"), (4.0, "pairs at 4.0")):
        cache = DescriptorCache(tmp_path / "cache")
        (method,) = open_methods([name], extent=extent, cache=cache, detector="dog")
        reader = PairReader("dog", 150)
        expected = [score(reader.open(files), method)["ap"] for files in find_pairs(folder)]
        assert found[called] == pytest.approx(np.mean(expected), abs=1e-6)
    assert found["pairs"] == pytest.approx((found["pairs at own"] + found["pairs at 4.0"]) / 2)
    assert found["pairs at own"] > found["pairs at 4.0"] + 1


def test_a_models_own_extent_is_that_of_the_detector(folder: Path, tmp_path: Path) -> None:
    model = load(with_extents(tmp_path / "mine.safetensors", dog=4.0))
    judge = PairsEvaluator(folder, "dog", 150)
    assert judge.at(model, None) == judge.at(model, 4.0)
    assert judge.at(model, 4.0).ap < judge.at(model, 12.0).ap - 1


def test_patches_are_cut_once_for_all_models_and_images_described_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts: list[int] = []
    extract = module.extract_patches
    monkeypatch.setattr(module, "extract_patches", lambda *given: cuts.append(1) or extract(*given))
    judge = PairsEvaluator(folder, "dog", 50)
    first = judge.measure(load("doap-demo-128"))
    assert list(first) == ["pairs"]
    assert len(cuts) == 8  # six images of the sequence, two of the pair
    assert judge.measure(load("doap-demo-128")) == first
    judge.measure(load("doap-demo-256b"))
    assert len(cuts) == 8


def test_pairs_without_a_homography_are_judged_by_right_matches(folder: Path, tmp_path: Path) -> None:
    plain = PairsEvaluator(folder, "dog", 50).measure(load("doap-demo-128"))
    write_pair(folder / "c", 1, "points.csv")
    judge = PairsEvaluator(folder, "dog", 50)
    assert (len(judge.pairs), len(judge.labelled)) == (6, 1)
    found = judge.measure(load("doap-demo-128"))
    (method,) = open_methods(["doap-demo-128"], cache=DescriptorCache(tmp_path / "cache"), detector="dog")
    assert found == {**plain, "right": pytest.approx(score(judge.labelled[0], method)["right within 3 px"])}
    assert 0 < found["right"] <= 100
    write_pair(tmp_path / "labelled" / "c", 1, "points.csv")
    with pytest.raises(DoapError, match="all pairs are known by labelled points; AP takes a homography") as caught:
        PairsEvaluator(tmp_path / "labelled", "dog", 50)
    assert "\n" not in str(caught.value)
