from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from doap import DoapError, PatchSet
from doap.datasets.label_mining.figure import check_sequences, draw_clusters
from doap.datasets.label_mining.mining import MinedLabels, mine_labels
from doap.datasets.label_mining.settings import MiningSettings
from support.figures import record_figures
from support.sets.small_official_sets import make_sequences

NAMES = [f"v_{number}" for number in range(10)]


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    """Twelve patches in each of ten sequences."""
    pixels = np.random.default_rng(0).integers(0, 256, (120, 32, 32), dtype=np.uint8)
    groups = np.arange(120) // 2
    return PatchSet([pixels], groups, groups // 6, sequence_names=NAMES)


@pytest.fixture(scope="module")
def mined(patches: PatchSet) -> MinedLabels:
    return mine_labels(patches, lambda indices: torch.from_numpy(patches.take(indices)), MiningSettings(4, 50))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return record_figures(monkeypatch)


def draw(mined: MinedLabels, patches: PatchSet, path: Path, names: list[str], images: Path | None = None) -> None:
    draw_clusters(mined, patches, lambda indices: torch.from_numpy(patches.take(indices)), path, names, images)


def titles(figure: Figure) -> list[str]:
    return [axes.texts[0].get_text() for axes in figure.axes if axes.texts]


def pictures(figure: Figure, panel: int) -> list[NDArray[np.uint8]]:
    return [np.asarray(image.get_array()) for image in figure.axes[panel].images]


def test_chosen_sequences_are_drawn_in_their_order(
    mined: MinedLabels, patches: PatchSet, tmp_path: Path, figures: list[Figure]
) -> None:
    chosen = ["v_7", "v_0", "v_3", "v_9", "v_1"]
    draw(mined, patches, tmp_path / "figure.png", chosen)
    (figure,) = figures
    assert titles(figure) == chosen
    for panel, name in enumerate(chosen):
        own = patches.take(np.flatnonzero(patches.sequences == NAMES.index(name)))
        assert len(pictures(figure, panel)) == 12
        assert all((own == picture).all((1, 2)).any() for picture in pictures(figure, panel))
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_four_sequences_are_sampled_otherwise(
    mined: MinedLabels, patches: PatchSet, tmp_path: Path, figures: list[Figure]
) -> None:
    draw(mined, patches, tmp_path / "figure.png", [])
    assert len(set(titles(figures[0])) & set(NAMES)) == 4


def test_arrows_have_the_colour_of_their_pair(
    mined: MinedLabels, patches: PatchSet, tmp_path: Path, figures: list[Figure]
) -> None:
    draw(mined, patches, tmp_path / "figure.png", ["v_2"])
    arrows = [patch for patch in figures[0].axes[0].patches if hasattr(patch, "get_arrowstyle")]
    near = np.triu(mined.near[2].numpy(), 1)
    assert len(arrows) == 6  # pairs of four clusters
    greys = [arrow for arrow in arrows if np.allclose(arrow.get_edgecolor()[:3], 0x9A / 255)]
    assert len(greys) == near.sum() == 3  # half of the six distances


def test_the_first_image_is_left_of_the_clusters_where_the_folder_has_it(
    mined: MinedLabels, patches: PatchSet, tmp_path: Path, figures: list[Figure]
) -> None:
    images = make_sequences(tmp_path / "images", ("v_3", "v_8"))
    draw(mined, patches, tmp_path / "figure.png", ["v_0", "v_3"], images)
    assert (len(pictures(figures[0], 0)), len(pictures(figures[0], 1))) == (12, 13)
    with Image.open(images / "v_3" / "1.ppm") as image:
        np.testing.assert_array_equal(pictures(figures[0], 1)[-1], np.asarray(image.convert("L")))
    left, right, bottom, top = figures[0].axes[1].images[-1].get_extent()
    assert left < right < 0
    assert (right - left) / (bottom - top) == pytest.approx(30 / 20)


@pytest.mark.parametrize(
    ("names", "has_images", "message"),
    [
        (["v_3", "v_london"], False, "v_london: no such sequence in the set; there are v_0, v_1, v_2, v_3, v_4 …"),
        (NAMES[:9], False, "9 sequences do not fit into a figure; choose at most 8"),
        (["v_3"], True, "images: has no image of these sequences"),
        ([], True, "images: has no image of these sequences"),
    ],
)
def test_wrong_choices_are_one_line(
    patches: PatchSet, tmp_path: Path, names: list[str], has_images: bool, message: str
) -> None:
    images = make_sequences(tmp_path / "images", ("v_other",)) if has_images else None
    with pytest.raises(DoapError, match=message) as caught:
        check_sequences(patches, names, images)
    assert "\n" not in str(caught.value)
