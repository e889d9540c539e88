from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, FrameSet, PatchSet
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.splitting import write_split
from doap.images.frames import detect_dog
from doap.training import sources as module
from doap.training.data_cache import Sources, hold_out
from doap.training.recipe import Recipe
from doap.training.trainer import train
from support.small_frame_set import FrameSetMaker, add_plane, add_singles, add_static, small_frame_set

SMALL = Recipe(width=2, dimensions=16, batch_size=128, views_per_group=4, epochs=1, lr=1.0, precision="fp32", val_fraction=0.5)


@pytest.fixture
def patches() -> PatchSet:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 32, 32), dtype=np.uint8)
    return PatchSet([pixels], np.arange(80) // 2, np.arange(80) // 20)


@pytest.fixture
def frames(photo: np.ndarray) -> FrameSet:
    return frame_set_from_photos([("a", photo[:, :256]), ("b", photo[:, 256:])], lambda image: detect_dog(image, 80))


def test_a_set_is_loaded_once_a_size(patches: PatchSet) -> None:
    sources, told = Sources(), []
    first = sources.load(patches, "cpu", 32, told.append)
    assert told == [1.0]
    assert sources.load(patches, "cpu", 32, told.append) is first
    assert told == [1.0]
    smaller = sources.load(patches, "cpu", 16)
    assert smaller.take(np.arange(3), torch.Generator()).shape == (3, 16, 16)
    equal = PatchSet(patches.shards, patches.groups, patches.sequences)
    assert sources.load(equal, "cpu", 32) is not first


def test_photos_serve_patches_of_every_size(frames: FrameSet, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources()
    drawn = {}
    for size in (32, 42, 32):
        drawn[size] = sources.load(frames, "cpu", size).take(np.arange(5), torch.Generator().manual_seed(0))
        monkeypatch.setattr(FrameSet, "picture", None)  # no photo is decoded again
    assert {size: tuple(patches.shape) for size, patches in drawn.items()} == {32: (5, 32, 32), 42: (5, 42, 42)}


def test_the_sets_used_longest_ago_are_forgotten(patches: PatchSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    sources = Sources()
    first = sources.load(patches, "cpu", 32)
    second = sources.load(patches, "cpu", 24)
    assert sources.load(patches, "cpu", 32) is first
    sources.load(patches, "cpu", 16)
    assert sources.load(patches, "cpu", 32) is first
    assert sources.load(patches, "cpu", 24) is not second


def test_trainings_that_share_sources_decode_photos_once_and_give_the_same_bits(
    frames: FrameSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {seed: train(SMALL.model_copy(update={"seed": seed}), frames, tmp_path / f"{seed}") for seed in (0, 1)}
    decoded: list[int] = []
    picture = FrameSet.picture
    monkeypatch.setattr(FrameSet, "picture", lambda self, number: decoded.append(number) or picture(self, number))
    sources = Sources()
    for run, recipe in {"a": {"seed": 0}, "b": {"seed": 0, "lr": 0.5}, "c": {"seed": 1}}.items():
        model = train(SMALL.model_copy(update=recipe), frames, tmp_path / run, sources=sources)
        if run != "b":
            expected = alone[recipe["seed"]].network.state_dict()
            assert all(torch.equal(value, expected[name]) for name, value in model.network.state_dict().items())
        if run == "b":
            assert sorted(decoded) == [0, 1]
    assert (tmp_path / "a" / "validation.csv").read_text() == (tmp_path / "0" / "validation.csv").read_text()


def folders(data: FrameSet) -> set[Path]:
    """Of all photos that have a frame, those of the collection left out."""
    names = {data.photo_names[photo] for photo in data.photos}
    return {Path(name).parent for name in names if "many" not in name}


def test_what_is_held_out_is_what_a_split_sets_aside_and_shares_no_folder_with_the_rest(tmp_path: Path) -> None:
    whole = small_frame_set()
    for seed in range(4):
        recipe = SMALL.model_copy(update={"val_fraction": 0.3, "seed": seed})
        training, held_out = Sources().split(whole, recipe)
        assert sorted([*training.groups, *held_out.groups]) == sorted(whole.groups)
        assert isinstance(training, FrameSet)
        assert isinstance(held_out, FrameSet)
        assert set(held_out.sources) == {0, 1, 2}
        assert not folders(training) & folders(held_out)
        aside = write_split(whole, tmp_path / str(seed), 0.3, seed)["aside"].data
        assert set(aside.groups) == set(held_out.groups)


def test_parts_of_a_scene_that_did_not_connect_are_held_out_together() -> None:
    maker = FrameSetMaker()
    for number in range(3):  # each of the scenes in two parts
        add_plane(maker, f"scene{number}", number)
        add_plane(maker, f"scene{number}", number + 3)
        maker.sequences[-1] += " again"
    training, held_out = hold_out(maker.frame_set(), SMALL.model_copy(update={"val_fraction": 0.3}))
    assert len(set(held_out.sequences)) == 2
    assert {sequence // 2 for sequence in held_out.sequences}.isdisjoint(s // 2 for s in training.sequences)


def test_sets_without_photos_are_held_out_by_sequence(patches: PatchSet) -> None:
    for share, count in ((0.01, 1), (0.5, 2), (0.99, 3)):
        training, held_out = hold_out(patches, SMALL.model_copy(update={"val_fraction": share}))
        assert len(set(held_out.sequences)) == count
        assert sorted({*training.sequences, *held_out.sequences}) == [0, 1, 2, 3]
        assert not set(training.sequences) & set(held_out.sequences)


def test_a_set_of_one_scene_of_a_kind_is_one_line() -> None:
    maker = FrameSetMaker()
    add_singles(maker, "few", 4)
    add_static(maker, "static", 9)
    with pytest.raises(DoapError, match=r"^val_fraction=0.5: .* no two of 2 are of one kind; .* set val_fraction=0$"):
        hold_out(maker.frame_set(), SMALL)
