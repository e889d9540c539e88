import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from doap import DoapError, load
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import Method, open_methods
from doap.evaluation.phototour.benchmark import Phototour, trained_on
from doap.evaluation.phototour.pair_test import find_scenes, fpr95, open_test, pair_distances, scene_of
from doap.networks.card import Origin, TrainingSet
from doap.networks.descriptor import describe_patches
from doap.networks.registry import find_card, save
from doap.types import Descriptors
from support.sets.small_phototour import PAIRS, learnable_phototour


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return learnable_phototour(tmp_path / "yosemite", points=100, pairs=160)


def read_by_hand(folder: Path) -> tuple[NDArray[np.uint8], list[list[int]]]:
    """Return all patches from the sheets, and the rows of the pair file."""
    sheets = [np.asarray(Image.open(file)) for file in sorted(folder.glob("*.bmp"))]
    patches = [sheet[64 * (i // 16) :, 64 * (i % 16) :][:64, :64] for sheet in sheets for i in range(256)]
    return np.stack(patches), [list(map(int, line.split())) for line in (folder / PAIRS).read_text().splitlines()]


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_the_rate_is_that_of_every_pair_described_alone(folder: Path, name: str) -> None:
    model = load(name, fast=False)
    patches, rows = read_by_hand(folder)

    def outputs(patch: int) -> Descriptors:
        with torch.no_grad():
            return np.asarray(model(torch.from_numpy(patches[patch].copy())[None])[0])

    def distance(first: Descriptors, second: Descriptors) -> float:
        if name.endswith("b"):
            return sum(int(a ^ b).bit_count() for a, b in zip(first.tolist(), second.tolist(), strict=True))
        return round(float(np.sqrt(((first.astype(float) - second) ** 2).sum())), 5)  # batches round otherwise

    distances = [distance(outputs(row[0]), outputs(row[3])) for row in rows]
    matching = sorted(d for d, row in zip(distances, rows, strict=True) if row[1] == row[4])
    others = [d for d, row in zip(distances, rows, strict=True) if row[1] != row[4]]
    threshold = matching[-(-95 * len(matching) // 100) - 1]
    expected = sum(d <= threshold for d in others) / len(others)
    assert 0 < expected < 1
    assert fpr95(model, folder) == pytest.approx(expected, abs=1e-12)
    assert fpr95(model, open_test(folder)) == fpr95(model, folder)


def test_only_patches_in_pairs_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / PAIRS).write_text(
        "".join(f"{i} {5 + 2 * (i // 3)} 0 {i + 1} {5 + 2 * ((i + 1) // 3)} 0 0\n" for i in range(6))
    )
    test = open_test(folder)
    read: list[int] = []
    steps: list[tuple[int, int]] = []
    original = PatchSet.take

    def take(self: PatchSet, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        read.extend(indices.tolist())
        return original(self, indices)

    monkeypatch.setattr(PatchSet, "take", take)
    fpr95(load("doap-demo-128", fast=False), test, lambda done, total: steps.append((done, total)))
    assert (read, steps) == (list(range(7)), [(7, 7)])


def test_distances_of_rows() -> None:
    first = np.array([[1, 0], [0.6, 0.8]], np.float32)
    np.testing.assert_allclose(pair_distances(first, first[::-1].copy()), [np.sqrt(0.8)] * 2, rtol=1e-7)
    bits = np.array([[0b1010, 255], [0, 0]], np.uint8)
    assert pair_distances(bits, np.array([[0b0110, 255], [128, 1]], np.uint8)).tolist() == [2, 2]


def test_folders_that_are_no_test_are_one_line(folder: Path, tmp_path: Path) -> None:
    (folder / PAIRS).write_text("0 5 0 1 5 0 0\n")
    with pytest.raises(DoapError, match=r"m50_100000_100000_0\.txt: needs matching and non-matching pairs"):
        open_test(folder)
    (folder / PAIRS).unlink()
    with pytest.raises(DoapError, match=r"m50_100000_100000_0\.txt: cannot be read"):
        open_test(folder)
    with pytest.raises(DoapError, match="not an official folder of Phototour"):
        open_test(tmp_path)


def slow_rates(method: Method, folder: Path) -> tuple[float, float]:
    """Compute FPR95 and the area under the ROC curve in percent, from all pairs of a matching and another pair."""
    patches, rows = read_by_hand(folder)
    used = sorted({patch for row in rows for patch in (row[0], row[3])})
    described = dict(zip(used, describe_patches(patches[used], method.model).tolist(), strict=True))
    near: list[float] = []
    far: list[float] = []
    for row in rows:
        both = list(zip(described[row[0]], described[row[3]], strict=True))
        if method.kind == "binary":
            distance = float(sum((a ^ b).bit_count() for a, b in both))
        else:
            distance = math.sqrt(sum((a - b) ** 2 for a, b in both))
        (near if row[1] == row[4] else far).append(distance)
    threshold = min(t for t in near if sum(d <= t for d in near) >= 0.95 * len(near))
    nearer = sum((n < f) + 0.5 * (n == f) for n in near for f in far)
    return 100 * sum(f <= threshold for f in far) / len(far), 100 * nearer / len(near) / len(far)


def test_methods_are_evaluated_as_by_hand(folder: Path, tmp_path: Path) -> None:
    models = ["doap-demo-128", "doap-demo-256b", "beblid-256"]
    methods = open_methods(models, cache=DescriptorCache(tmp_path / "descriptors"))
    steps: list[tuple[str, int, int | None]] = []
    result = Phototour(folder).evaluate(methods, lambda *step: steps.append(step))
    assert [score["descriptor"] for score in result.scores] == models
    for score, method in zip(result.scores, methods, strict=True):
        rate, area = slow_rates(method, folder)
        assert 0 < rate < 100
        assert score["fpr95"] == pytest.approx(rate, abs=1e-9)
        assert score["auc"] == pytest.approx(area, abs=1e-9)
        assert (score["test"], score["trained on"]) == ("yosemite", "")
    used = len(open_test(folder).selection)
    assert ("doap-demo-128 on yosemite", used, used) in steps
    assert "ties gain nothing" in result.settings["rule"]
    assert result.settings["pairs"] == {"yosemite": 160}
    for curve in result.curves:
        assert curve["recall"] == sorted(curve["recall"])
        assert (curve["false positive rate"][-1], curve["recall"][-1]) == (1, 1)


def trained(folder: Path, name: str, data: str = "", training_sets: Sequence[TrainingSet] = ()) -> str:
    """Save a model with a card that names its training scene."""
    shipped, card = load("doap-demo-128", fast=False), find_card("doap-demo-128")
    assert card is not None
    shipped.name = name
    origin = Origin(data=data, training_sets=list(training_sets))
    save(shipped, folder / f"{name}.safetensors", card.architecture, origin)
    return str(folder / f"{name}.safetensors")


def test_no_model_is_tested_where_it_was_trained(folder: Path, tmp_path: Path) -> None:
    models = [
        trained(tmp_path, "by-card", "/somewhere/phototour-yosemite"),
        trained(tmp_path, "by-name-yosemite", "in memory"),
        trained(tmp_path, "by-neither", "/somewhere/yosemite/else"),
    ]
    methods = open_methods([*models, "sift"], cache=DescriptorCache(tmp_path / "descriptors"))
    assert [trained_on(each) for each in methods] == [["yosemite"], ["yosemite"], [], []]
    shutil.copytree(folder, tmp_path / "both" / "yosemite")
    shutil.copytree(folder, tmp_path / "both" / "liberty")
    result = Phototour(tmp_path / "both").evaluate(methods)
    assert [(score["descriptor"], score["test"]) for score in result.scores] == [
        ("by-card", "liberty"),
        ("by-name-yosemite", "liberty"),
        ("by-neither", "liberty"),
        ("sift", "liberty"),
        ("by-neither", "yosemite"),
        ("sift", "yosemite"),
    ]
    assert [each["trained on"] for each in result.methods] == ["yosemite", "yosemite", "", ""]
    with pytest.raises(DoapError, match="every model was trained on yosemite; give another test scene"):
        Phototour(folder).evaluate(methods[:2])


def test_a_card_names_any_number_of_any_scenes(folder: Path, tmp_path: Path) -> None:
    several = [
        TrainingSet(path="p", layout="phototour", sequences=["phototour-harbour"]),
        TrainingSet(path="q", layout="phototour", sequences=["Liberty"]),
        TrainingSet(path="r", layout="hpatches", sequences=["yosemite"]),
    ]
    specs = [
        trained(tmp_path, "both", training_sets=several),
        trained(tmp_path, "x-yosemite", training_sets=several[2:]),
    ]
    methods = open_methods([*specs, "sift"], cache=DescriptorCache(tmp_path / "descriptors"))
    assert [trained_on(method) for method in methods] == [["liberty", "harbour"], [], []]
    for name in ("phototour-harbour", "yosemite", "liberty"):
        shutil.copytree(folder, tmp_path / "scenes" / name)
    result = Phototour(tmp_path / "scenes").evaluate(methods)
    assert [(score["descriptor"], score["test"]) for score in result.scores] == [
        ("x-yosemite", "liberty"), ("sift", "liberty"),
        ("both", "yosemite"), ("x-yosemite", "yosemite"), ("sift", "yosemite"),
        ("x-yosemite", "harbour"), ("sift", "harbour"),
    ]  # fmt: skip
    assert result.methods[0]["trained on"] == "liberty + harbour"


@pytest.mark.parametrize(
    ("name", "scene"),
    [
        ("liberty", "liberty"), ("phototour-notredame", "notredame"), ("doap_yosemite", "yosemite"),
        ("Liberty", "liberty"), ("liberty-2", ""), ("deliberty", ""), ("", ""), ("mine", ""),
        ("phototour-a", "a"), ("split-a", ""), ("phototour-deliberty", "deliberty"),
        ("doap-liberty@64", "liberty"), ("phototour-a@64", "a"), ("mine@64", ""), ("liberty@", ""),
    ],
)  # fmt: skip
def test_scenes_end_names(name: str, scene: str) -> None:
    assert scene_of(name) == scene


def test_scenes_are_found_alone_and_together(folder: Path, tmp_path: Path) -> None:
    assert find_scenes(folder) == {"yosemite": folder}
    other = learnable_phototour(tmp_path / "phototour-liberty", points=10, pairs=4)
    (tmp_path / "hpatches").mkdir()
    assert find_scenes(tmp_path) == {"liberty": other, "yosemite": folder}
    learnable_phototour(tmp_path / "liberty", points=10, pairs=4)
    with pytest.raises(DoapError, match="liberty and phototour-liberty are both liberty"):
        find_scenes(tmp_path)
    with pytest.raises(DoapError, match="and contains none"):
        find_scenes(tmp_path / "hpatches")
    with pytest.raises(DoapError, match="nowhere: no such folder"):
        find_scenes(tmp_path / "nowhere")
    learnable_phototour(tmp_path / "phototour-b", points=10, pairs=4)
    other.rename(tmp_path / "Arc")
    assert list(find_scenes(tmp_path)) == ["liberty", "yosemite", "arc", "b"]
