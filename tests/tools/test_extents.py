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
from support.sets.small_pairs import write_pair, write_sequence

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
    assert result.settings == {"data": "pairs", "pairs sha256": extents.hash_pairs(pairs), "pairs": 2,
                               "keypoints": 120, "extents": [2.0, 9.0]}  # fmt: skip
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


def test_results_of_other_pairs_keypoints_or_without_a_record_are_refused(
    weights_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weights_folder.exists()
    for folder, seed in (("one", 0), ("two", 1)):
        write_pair(tmp_path / folder / "val" / "0", seed)
    output = tmp_path / "e.json"
    words = [NAMES[0], "-o", str(output), "--device", "cpu", "--detectors", "dog"]
    extents.main([*words, "--pairs", str(tmp_path / "one" / "val"), "--keypoints", "80"])
    measured = read_result(output)

    def never(*_: object) -> PairsScore:
        raise AssertionError("measured again")

    monkeypatch.setattr(PairsEvaluator, "evaluate_at", never)
    (tmp_path / "one").rename(tmp_path / "moved")  # the same content
    extents.main([*words, "--pairs", str(tmp_path / "moved" / "val"), "--keypoints", "80"])
    settings = {key: value for key, value in measured.settings.items() if key != "pairs sha256"}
    for result, folder, keypoints, difference in (
        (measured, "two", "80", f"has scores of other pairs than {tmp_path / 'two' / 'val'}"),
        (measured, "moved", "60", "has scores with 80 keypoints, not 60"),
        (measured.model_copy(update={"settings": settings}), "moved", "80", "does not record which pairs its scores "),
    ):
        result.write_json(output)
        before = output.read_bytes()
        with pytest.raises(SystemExit) as ended:
            extents.main([*words, "--pairs", str(tmp_path / folder / "val"), "--keypoints", keypoints])
        assert str(ended.value.code).startswith(f"{output}: {difference}")
        assert str(ended.value.code).endswith("; remove it, or write to another file")
        assert output.read_bytes() == before


def test_the_hash_of_pairs_depends_on_images_names_and_homographies(tmp_path: Path) -> None:
    write_pair(tmp_path / "pair" / "0", 0)
    write_sequence(tmp_path / "sequence" / "a", 0)
    first = {name: extents.hash_pairs(tmp_path / name) for name in ("pair", "sequence")}
    assert len(set(first.values())) == 2
    np.savetxt(tmp_path / "sequence" / "a" / "H1to3p", np.eye(3))
    assert extents.hash_pairs(tmp_path / "sequence") != first["sequence"]
    for change in (
        lambda pair: shutil.copy(pair / "a.png", pair / "b.png"),
        lambda pair: (pair / "b.png").rename(pair / "c.png"),
        lambda pair: np.savetxt(pair / "H.txt", np.eye(3)),
    ):
        before = extents.hash_pairs(tmp_path / "pair")
        change(tmp_path / "pair" / "0")
        assert extents.hash_pairs(tmp_path / "pair") != before


def test_detectors_can_be_measured_one_after_the_other(weights_folder: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "pairs" / "0", 0)
    options = [NAMES[0], "--pairs", str(tmp_path / "pairs"), "--keypoints", "80", "-o", str(tmp_path / "e.json")]
    extents.main([*options, "--device", "cpu", "--detectors", "dog"])
    assert set(read_card(weights_folder / f"{NAMES[0]}.safetensors").extents) == {"dog"}
    extents.main([*options, "--device", "cpu", "--detectors", "harris-affine"])
    assert set(read_card(weights_folder / f"{NAMES[0]}.safetensors").extents) == {"dog", "harris-affine"}
    assert len(read_result(tmp_path / "e.json").scores) == 4


def test_a_card_keeps_the_extents_of_detectors_that_are_not_measured() -> None:
    card = read_card(registry.WEIGHTS_FOLDER / f"{NAMES[0]}.safetensors")
    card = card.model_copy(update={"extents": {}, "origin": card.origin.model_copy(update={"figures": {"else": 1.0}})})
    both = extents.update_card(card, {"dog": (12.0, 50.0), "harris-affine": (6.0, 40.0)}, 157)
    again = extents.update_card(both, {"dog": (8.5, 55.0)}, 144)
    assert again.extents == {"dog": 8.5, "harris-affine": 6.0}
    assert list(again.origin.figures.items()) == [
        ("AP % on 144 validation pairs, dog at extent 8.5", 55.0),
        ("AP % on 157 validation pairs, harris-affine at extent 6", 40.0),
        ("else", 1.0),
    ]


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
