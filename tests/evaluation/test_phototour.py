from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from doap import DoapError, load
from doap.evaluation.phototour import fpr95, open_test, pair_distances
from doap.patches.patchset import PatchSet
from small_phototour import PAIRS, learnable_phototour


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return learnable_phototour(tmp_path / "yosemite", points=100, pairs=160)


def read_by_hand(folder: Path) -> tuple[np.ndarray, list[list[int]]]:
    """All patches from the sheets, and the rows of the pair file."""
    sheets = [np.asarray(Image.open(file)) for file in sorted(folder.glob("*.bmp"))]
    patches = [sheet[64 * (i // 16) :, 64 * (i % 16) :][:64, :64] for sheet in sheets for i in range(256)]
    return np.stack(patches), [list(map(int, line.split())) for line in (folder / PAIRS).read_text().splitlines()]


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_the_rate_is_that_of_every_pair_described_alone(folder: Path, name: str) -> None:
    model = load(name)
    patches, rows = read_by_hand(folder)

    def outputs(patch: int) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(patches[patch].copy())[None])[0].numpy()

    def distance(first: np.ndarray, second: np.ndarray) -> float:
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
    test, read, told = open_test(folder), [], []
    whole = PatchSet.take
    monkeypatch.setattr(PatchSet, "take", lambda self, indices: read.extend(indices) or whole(self, indices))
    fpr95(load("doap-demo-128"), test, lambda done, total: told.append((done, total)))
    assert (read, told) == (list(range(7)), [(7, 7)])


def test_distances_of_rows() -> None:
    first = np.array([[1, 0], [0.6, 0.8]], np.float32)
    np.testing.assert_allclose(pair_distances(first, first[::-1].copy()), [np.sqrt(0.8)] * 2, rtol=1e-7)
    bits = np.array([[0b1010, 255], [0, 0]], np.uint8)
    assert pair_distances(bits, np.array([[0b0110, 255], [128, 1]], np.uint8)).tolist() == [2, 2]


def test_folders_that_are_no_test_are_one_line(folder: Path, tmp_path: Path) -> None:
    (folder / PAIRS).write_text("0 5 0 1 5 0 0\n")
    with pytest.raises(DoapError, match=r"m50_100000_100000_0\.txt: needs pairs that match and pairs that do not"):
        open_test(folder)
    (folder / PAIRS).unlink()
    with pytest.raises(DoapError, match=r"m50_100000_100000_0\.txt: cannot be read"):
        open_test(folder)
    with pytest.raises(DoapError, match="not an official folder of Phototour"):
        open_test(tmp_path)
