"""`tools/extents.py`, on small pairs."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import extents
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.harness.result import read_result
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import score
from doap.networks import registry
from doap.networks.descriptor import Descriptor
from doap.networks.registry import read_card
from support.small_pairs import write_pair

NAMES = ("doap-demo-128", "doap-demo-256b")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the demo's models instead of the shipped ones, and a grid of two."""
    (tmp_path / "weights").mkdir()
    for name in NAMES:
        shutil.copy(registry.SHIPPED / f"{name}.safetensors", tmp_path / "weights")
        card = read_card(registry.SHIPPED / f"{name}.safetensors")
        origin = card.origin.model_copy(update={"figures": {"something else": 1.0}})
        unmeasured = card.model_copy(update={"extents": {}, "origin": origin})
        registry.write_card(tmp_path / "weights" / f"{name}.safetensors", unmeasured)
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "weights")
    monkeypatch.setattr(extents, "EXTENTS", (2.0, 9.0))
    return tmp_path / "weights"


def test_the_table_is_that_of_eval_pairs_and_the_cards_hold_the_best(shelf: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    for seed in range(2):
        write_pair(pairs / str(seed), seed)
    before = read_card(shelf / f"{NAMES[0]}.safetensors")
    words = ["--pairs", str(pairs), "-o", str(tmp_path / "extents.json"), "--keypoints", "120", "--device", "cpu"]
    extents.main(words)
    result = read_result(tmp_path / "extents.json")
    assert result.settings == {"data": "pairs", "pairs": 2, "keypoints": 120, "extents": [2.0, 9.0]}
    assert result.methods[0] == {"name": NAMES[0], "sha256": before.sha256}
    assert len(result.scores) == 2 * 2 * 2
    for row in result.scores:
        kept = DescriptorCache(tmp_path / "cache")
        (method,) = open_methods([str(row["descriptor"])], extent=float(row["extent"]), cache=kept)
        reader = PairReader(str(row["detector"]), 120)
        expected = np.mean([score(reader.open(files), method)["ap"] for files in find_pairs(pairs)])
        assert row["ap"] == pytest.approx(expected, abs=0.0051)
    for name in NAMES:
        card = read_card(shelf / f"{name}.safetensors")
        for detector in ("dog", "harris-affine"):
            own = {
                row["extent"]: row["ap"]
                for row in result.scores
                if (row["descriptor"], row["detector"]) == (name, detector)
            }
            assert own[card.extents[detector]] == max(own.values())
            called = f"AP % on validation pairs, {detector} at extent {card.extents[detector]:g}"
            assert card.origin.figures[called] == max(own.values())
    after = read_card(shelf / f"{NAMES[0]}.safetensors")
    assert after.extent == before.extent
    assert list(after.origin.figures.items())[2:] == list(before.origin.figures.items())
    extents.main([NAMES[0], *words])  # again: nothing is written twice
    assert read_card(shelf / f"{NAMES[0]}.safetensors") == after
    assert read_result(tmp_path / "extents.json") == result


def test_a_stopped_search_goes_on_and_other_weights_are_measured_anew(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pair(tmp_path / "pairs" / "0", 0)
    words = ["--pairs", str(tmp_path / "pairs"), "--keypoints", "80", "--device", "cpu", "-o"]
    extents.main([*words, str(tmp_path / "whole.json")])
    whole = read_result(tmp_path / "whole.json")
    measure, asked, stops = extents.PairsEvaluator.at, [], [4]

    def at(judge: extents.PairsEvaluator, model: Descriptor, extent: float | None) -> extents.PairsScore:
        asked.append((model.name, judge.detector, extent))
        if len(asked) in stops:
            raise RuntimeError("stopped")
        return measure(judge, model, extent)

    monkeypatch.setattr(extents.PairsEvaluator, "at", at)
    with pytest.raises(RuntimeError, match="stopped"):
        extents.main([*words, str(tmp_path / "stopped.json")])
    assert len(read_result(tmp_path / "stopped.json").scores) == 3
    extents.main([*words, str(tmp_path / "stopped.json")])
    assert read_result(tmp_path / "stopped.json") == whole
    assert len(asked) == 1 + len(whole.scores)  # what was asked in vain, and everything once
    stops.clear()
    card = read_card(shelf / f"{NAMES[0]}.safetensors")
    of_others = whole.model_copy(update={"methods": [{"name": card.name, "sha256": "0"}, whole.methods[1]]})
    of_others.write_json(tmp_path / "stopped.json")
    asked.clear()
    extents.main([*words, str(tmp_path / "stopped.json")])
    assert {name for name, *_ in asked} == {card.name}
    extents.main([*words[:2], "--keypoints", "60", "--device", "cpu", "-o", str(tmp_path / "stopped.json")])
    assert read_result(tmp_path / "stopped.json").settings["keypoints"] == 60


def test_one_detector_can_be_measured_alone_and_then_the_other(shelf: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "pairs" / "0", 0)
    words = [NAMES[0], "--pairs", str(tmp_path / "pairs"), "--keypoints", "80", "-o", str(tmp_path / "e.json")]
    extents.main([*words, "--device", "cpu", "--detectors", "dog"])
    assert set(read_card(shelf / f"{NAMES[0]}.safetensors").extents) == {"dog"}
    extents.main([*words, "--device", "cpu", "--detectors", "harris-affine"])
    assert set(read_card(shelf / f"{NAMES[0]}.safetensors").extents) == {"dog", "harris-affine"}
    assert len(read_result(tmp_path / "e.json").scores) == 4


@pytest.mark.parametrize("top", [3.0, 8.5, 12.0, 17.0, 24.0])
def test_the_grid_is_climbed_to_the_top_and_no_further(top: float) -> None:
    curve: dict[float, float] = {}
    while (extent := extents.wanted(curve, 11.0)) is not None:
        assert extent not in curve
        curve[extent] = -abs(extents.EXTENTS.index(extent) - extents.EXTENTS.index(top))
    place = extents.EXTENTS.index(top)
    assert extents.best(curve) == top
    assert set(extents.EXTENTS[max(0, place - 1) : place + 2]) <= set(curve)
    assert 12.0 in curve
    assert len(curve) <= abs(place - 4) + 3


def test_of_two_as_good_the_smaller_is_taken() -> None:
    assert extents.best({17.0: 5.0, 6.0: 5.0, 3.0: 4.0}) == 6.0


@pytest.mark.parametrize(
    ("names", "message"), [(["sift"], "sift: a peer, it has no card"), (["x"], "no such file"), ([], "no such folder")]
)
def test_faults_are_one_line(shelf: Path, tmp_path: Path, names: list[str], message: str) -> None:
    assert shelf.exists()
    with pytest.raises(SystemExit) as ended:
        extents.main([*names, "--pairs", str(tmp_path / "nowhere"), "-o", str(tmp_path / "e.json"), "--device", "cpu"])
    assert message in str(ended.value.code)
    assert "\n" not in str(ended.value.code)
    assert not (tmp_path / "e.json").exists()
