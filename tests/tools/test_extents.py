"""tools/extents.py, on small pairs."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import extents
from doap.cli.progress import CountingBar
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.harness.result import read_result
from doap.evaluation.image_pairs.evaluator import PairsEvaluator, PairsScore
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import score_pair
from doap.networks import registry
from doap.networks.card import read_card, write_card
from doap.networks.descriptor import Descriptor
from support.sets.small_pairs import write_pair

NAMES = ("doap-demo-128", "doap-demo-256b")


def number(value: str | float | None) -> float:
    """Return a numeric cell of a score."""
    assert isinstance(value, int | float)
    return value


@pytest.fixture
def weights_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the shipped models by copies of the demo models, and the grid by two extents."""
    (tmp_path / "weights").mkdir()
    for name in NAMES:
        shutil.copy(registry.WEIGHTS_FOLDER / f"{name}.safetensors", tmp_path / "weights")
        card = read_card(registry.WEIGHTS_FOLDER / f"{name}.safetensors")
        origin = card.origin.model_copy(update={"figures": {"something else": 1.0}})
        unmeasured = card.model_copy(update={"extents": {}, "origin": origin})
        write_card(tmp_path / "weights" / f"{name}.safetensors", unmeasured)
    monkeypatch.setattr(registry, "WEIGHTS_FOLDER", tmp_path / "weights")
    monkeypatch.setattr(extents, "EXTENTS", (2.0, 9.0))
    return tmp_path / "weights"


def test_scores_are_those_of_eval_pairs_and_cards_hold_the_best_extents(weights_folder: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    for seed in range(2):
        write_pair(pairs / str(seed), seed)
    before = read_card(weights_folder / f"{NAMES[0]}.safetensors")
    options = ["--pairs", str(pairs), "-o", str(tmp_path / "extents.json"), "--keypoints", "120", "--device", "cpu"]
    extents.main(options)
    result = read_result(tmp_path / "extents.json")
    assert result.settings == {"data": "pairs", "pairs": 2, "keypoints": 120, "extents": [2.0, 9.0]}
    assert result.methods[0] == {"name": NAMES[0], "sha256": before.sha256}
    assert len(result.scores) == 2 * 2 * 2
    for row in result.scores:
        cache = DescriptorCache(tmp_path / "cache")
        (method,) = open_methods([str(row["descriptor"])], extent=number(row["extent"]), cache=cache)
        reader = PairReader(str(row["detector"]), 120)
        expected = np.mean([number(score_pair(reader.open(files), method)["ap"]) for files in find_pairs(pairs)])
        assert row["ap"] == pytest.approx(expected, abs=0.0051)
    for name in NAMES:
        card = read_card(weights_folder / f"{name}.safetensors")
        for detector in ("dog", "harris-affine"):
            own = {
                number(row["extent"]): number(row["ap"])
                for row in result.scores
                if (row["descriptor"], row["detector"]) == (name, detector)
            }
            assert own[card.extents[detector]] == max(own.values())
            figure = f"AP % on 2 validation pairs, {detector} at extent {card.extents[detector]:g}"
            assert card.origin.figures[figure] == max(own.values())
    after = read_card(weights_folder / f"{NAMES[0]}.safetensors")
    assert after.extent == before.extent
    assert list(after.origin.figures.items())[2:] == list(before.origin.figures.items())
    extents.main([NAMES[0], *options])  # repeated: nothing changes
    assert read_card(weights_folder / f"{NAMES[0]}.safetensors") == after
    assert read_result(tmp_path / "extents.json") == result


def test_the_progress_counts_measurements_apart_from_the_pairs_read(
    weights_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weights_folder.exists()
    write_pair(tmp_path / "pairs" / "a", 0)
    bar = CountingBar(Console(quiet=True))
    monkeypatch.setattr(extents, "counting_bar", lambda: bar)
    options = ["--pairs", str(tmp_path / "pairs"), "--keypoints", "60", "--device", "cpu", "--detectors", "dog"]
    extents.main([NAMES[0], *options, "-o", str(tmp_path / "e.json")])
    (task,) = bar.tasks
    assert (task.description, task.completed, task.total) == (f"{NAMES[0]}, dog", 2, None)


def test_an_interrupted_search_is_resumed_and_other_weights_are_measured_again(
    weights_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pair(tmp_path / "pairs" / "0", 0)
    options = ["--pairs", str(tmp_path / "pairs"), "--keypoints", "80", "--device", "cpu", "-o"]
    extents.main([*options, str(tmp_path / "complete.json")])
    complete = read_result(tmp_path / "complete.json")
    measure = PairsEvaluator.evaluate_at
    calls: list[tuple[str, str, float | None]] = []
    stops = [4]

    def evaluate_at(evaluator: PairsEvaluator, model: Descriptor, extent: float | None) -> PairsScore:
        calls.append((model.name, evaluator.detector, extent))
        if len(calls) in stops:
            raise RuntimeError("stopped")
        return measure(evaluator, model, extent)

    monkeypatch.setattr(PairsEvaluator, "evaluate_at", evaluate_at)
    with pytest.raises(RuntimeError, match="stopped"):
        extents.main([*options, str(tmp_path / "stopped.json")])
    assert len(read_result(tmp_path / "stopped.json").scores) == 3
    extents.main([*options, str(tmp_path / "stopped.json")])
    assert read_result(tmp_path / "stopped.json") == complete
    assert len(calls) == 1 + len(complete.scores)  # the interrupted call, and every score once
    stops.clear()
    card = read_card(weights_folder / f"{NAMES[0]}.safetensors")
    other_weights = complete.model_copy(update={"methods": [{"name": card.name, "sha256": "0"}, complete.methods[1]]})
    other_weights.write_json(tmp_path / "stopped.json")
    calls.clear()
    extents.main([*options, str(tmp_path / "stopped.json")])
    assert {name for name, *_ in calls} == {card.name}
    extents.main([*options[:2], "--keypoints", "60", "--device", "cpu", "-o", str(tmp_path / "stopped.json")])
    assert read_result(tmp_path / "stopped.json").settings["keypoints"] == 60


def test_scores_of_version_0_1_are_reused(weights_folder: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "pairs" / "0", 0)
    options = ["--pairs", str(tmp_path / "pairs"), "--keypoints", "80", "-o", str(tmp_path / "e.json")]
    extents.main([NAMES[0], *options, "--device", "cpu"])
    text = (tmp_path / "e.json").read_text()
    assert text.count('"correct":') == 4
    (tmp_path / "e.json").write_text(text.replace('"correct":', '"right":'))
    old = extents.Measurements(tmp_path / "e.json", tmp_path / "pairs", 80)
    assert len(old.scores) == 4
    assert all(set(score) == {"descriptor", "detector", "extent", "ap", "correct"} for score in old.scores)
    assert weights_folder.exists()


def test_detectors_can_be_measured_one_after_the_other(weights_folder: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "pairs" / "0", 0)
    options = [NAMES[0], "--pairs", str(tmp_path / "pairs"), "--keypoints", "80", "-o", str(tmp_path / "e.json")]
    extents.main([*options, "--device", "cpu", "--detectors", "dog"])
    assert set(read_card(weights_folder / f"{NAMES[0]}.safetensors").extents) == {"dog"}
    extents.main([*options, "--device", "cpu", "--detectors", "harris-affine"])
    assert set(read_card(weights_folder / f"{NAMES[0]}.safetensors").extents) == {"dog", "harris-affine"}
    assert len(read_result(tmp_path / "e.json").scores) == 4


@pytest.mark.parametrize("top", [3.0, 8.5, 12.0, 17.0, 24.0])
def test_the_search_ends_at_the_maximum(top: float) -> None:
    curve: dict[float, float] = {}
    while (extent := extents.next_extent(curve, 11.0)) is not None:
        assert extent not in curve
        curve[extent] = -abs(extents.EXTENTS.index(extent) - extents.EXTENTS.index(top))
    index = extents.EXTENTS.index(top)
    assert extents.best_extent(curve) == top
    assert set(extents.EXTENTS[max(0, index - 1) : index + 2]) <= set(curve)
    assert 12.0 in curve
    assert len(curve) <= abs(index - 4) + 3


def test_on_ties_the_smaller_extent_is_best() -> None:
    assert extents.best_extent({17.0: 5.0, 6.0: 5.0, 3.0: 4.0}) == 6.0


@pytest.mark.parametrize(
    ("names", "message"),
    [(["sift"], "sift: a baseline, which has no card"), (["x"], "no such file"), ([], "no such folder")],
)
def test_errors_are_one_line(weights_folder: Path, tmp_path: Path, names: list[str], message: str) -> None:
    assert weights_folder.exists()
    with pytest.raises(SystemExit) as ended:
        extents.main([*names, "--pairs", str(tmp_path / "nowhere"), "-o", str(tmp_path / "e.json"), "--device", "cpu"])
    assert message in str(ended.value.code)
    assert "\n" not in str(ended.value.code)
    assert not (tmp_path / "e.json").exists()
