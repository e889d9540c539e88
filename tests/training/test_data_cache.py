from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, FrameSet, PatchSet
from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.build.splitting import VAL, write_split
from doap.training import data_cache
from doap.training.data_cache import Data, DataCache, split_val
from doap.training.trainer import train
from doap.types import Grey
from support.sets.small_frame_set import FrameSetMaker, add_plane, add_singles, add_static, small_frame_set
from support.trainings import SMALL, same_files, same_weights

RECIPE = SMALL.model_copy(update={"views_per_group": 4, "epochs": 1, "val_fraction": 0.5})


@pytest.fixture
def patches() -> PatchSet:
    """40 groups of two in four sequences."""
    pixels = np.random.default_rng(0).integers(0, 256, (80, 32, 32), dtype=np.uint8)
    return PatchSet([pixels], np.arange(80) // 2, np.arange(80) // 20)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Indices of the photos that are decoded, in order."""
    indices: list[int] = []
    read_photo = FrameSet.read_photo

    def record(self: FrameSet, index: int) -> Grey:
        indices.append(index)
        return read_photo(self, index)

    monkeypatch.setattr(FrameSet, "read_photo", record)
    return indices


def test_a_set_is_loaded_once_per_size(patches: PatchSet) -> None:
    cache = DataCache()
    progress: list[tuple[int, int]] = []
    first = cache.load(patches, "cpu", 32, lambda done, total: progress.append((done, total)))
    assert progress == [(80, 80)]
    assert cache.load(patches, "cpu", 32, lambda done, total: progress.append((done, total))) is first
    assert progress == [(80, 80)]
    smaller = cache.load(patches, "cpu", 16)
    assert smaller.take(np.arange(3), torch.Generator()).shape == (3, 16, 16)
    equal = PatchSet(patches.shards, patches.groups, patches.sequences)
    assert cache.load(equal, "cpu", 32) is not first


def test_photos_serve_patches_of_every_size(frames: FrameSet, decoded: list[int]) -> None:
    cache = DataCache()
    for size in (32, 42, 32):
        patches = cache.load(frames, "cpu", size).take(np.arange(5), torch.Generator().manual_seed(0))
        assert patches.shape == (5, size, size)
    assert sorted(decoded) == [0, 1]


@pytest.mark.parametrize("extents", [(24.0, None), (None, 24.0)])
def test_photos_serve_patches_of_every_extent(
    extents: tuple[float | None, ...], frames: FrameSet, decoded: list[int]
) -> None:
    cache = DataCache()
    for extent in extents:
        source, alone = cache.load(frames, "cpu", 32, extent=extent), ResidentFrames(frames, extent=extent)
        taken, expected = (s.take(np.arange(5), torch.Generator().manual_seed(0)) for s in (source, alone))
        assert torch.equal(taken, expected)
    assert len(decoded) == 2 * 3  # the two photos, once in the cache


def test_the_least_recently_used_sets_are_dropped(patches: PatchSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_cache, "MAX_LOADED", 2)
    cache = DataCache()
    first = cache.load(patches, "cpu", 32)
    second = cache.load(patches, "cpu", 24)
    assert cache.load(patches, "cpu", 32) is first
    cache.load(patches, "cpu", 16)
    assert cache.load(patches, "cpu", 32) is first
    assert cache.load(patches, "cpu", 24) is not second


def test_trainings_that_share_a_cache_decode_photos_once_and_give_the_same_bits(
    frames: FrameSet, tmp_path: Path, decoded: list[int]
) -> None:
    alone = {seed: train(RECIPE.model_copy(update={"seed": seed}), frames, tmp_path / f"{seed}") for seed in (0, 1)}
    decoded.clear()
    cache = DataCache()
    first = train(RECIPE, frames, tmp_path / "a", cache=cache)
    assert same_weights(first, alone[0])
    assert same_files(tmp_path / "a", tmp_path / "0", "validation.csv")
    train(RECIPE.model_copy(update={"lr": 0.5}), frames, tmp_path / "b", cache=cache)
    assert sorted(decoded) == [0, 1]
    other = train(RECIPE.model_copy(update={"seed": 1}), frames, tmp_path / "c", cache=cache)
    assert same_weights(other, alone[1])


def folders(data: FrameSet) -> set[Path]:
    """Return the folders of all photos with a frame, except those of the collection."""
    names = {data.photo_names[photo] for photo in data.photos}
    return {Path(name).parent for name in names if "many" not in name}


def split(data: Data, fraction: float, seed: int = 0) -> tuple[Data, Data]:
    return split_val(data, RECIPE.model_copy(update={"val_fraction": fraction, "seed": seed}))


def test_validation_scenes_are_those_of_a_split_and_share_no_folder_with_the_rest(tmp_path: Path) -> None:
    whole = small_frame_set()
    for seed in range(4):
        training, validation = split(whole, 0.3, seed)
        assert sorted([*training.groups, *validation.groups]) == sorted(whole.groups)
        assert isinstance(training, FrameSet)
        assert isinstance(validation, FrameSet)
        assert set(validation.sources) == {0, 1, 2}
        assert not folders(training) & folders(validation)
        written = write_split(whole, tmp_path / str(seed), 0.3, seed)[VAL].data
        assert set(written.groups) == set(validation.groups)


def test_a_split_is_made_once(patches: PatchSet) -> None:
    cache = DataCache()
    parts = cache.split(patches, RECIPE)
    assert cache.split(patches, RECIPE.model_copy(update={"lr": 0.5})) is parts
    assert cache.split(patches, RECIPE.model_copy(update={"seed": 1})) is not parts


def test_parts_of_a_scene_that_are_not_connected_stay_together() -> None:
    maker = FrameSetMaker()
    for number in range(3):  # each of the scenes in two parts
        add_plane(maker, f"scene{number}", number)
        add_plane(maker, f"scene{number}", number + 3)
        maker.sequences[-1] += " again"
    training, validation = split(maker.frame_set(), 0.3)
    assert len(set(validation.sequences)) == 2
    assert {sequence // 2 for sequence in validation.sequences}.isdisjoint(s // 2 for s in training.sequences)


def test_sets_without_photos_are_split_by_sequence(patches: PatchSet) -> None:
    for fraction, count in ((0.01, 1), (0.5, 2), (0.99, 3)):
        training, validation = split(patches, fraction)
        assert len(set(validation.sequences)) == count
        assert sorted({*training.sequences, *validation.sequences}) == [0, 1, 2, 3]
        assert not set(training.sequences) & set(validation.sequences)


def test_one_scene_per_source_cannot_be_split() -> None:
    maker = FrameSetMaker()
    add_singles(maker, "few", 4)
    add_static(maker, "static", 9)
    with pytest.raises(DoapError, match=r"^val_fraction=0.5: .*set val_fraction=0$") as caught:
        split(maker.frame_set(), 0.5)
    assert "\n" not in str(caught.value)
