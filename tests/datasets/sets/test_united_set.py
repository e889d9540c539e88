"""Unions of patch sets: ids, names, pixels, and what they do not copy."""

from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, PatchSet
from doap.datasets.build.splitting import TRAIN, VAL, split_scenes
from doap.datasets.sets.scenes import find_scenes
from doap.datasets.sets.united_set import READ_SIZES, UnitedSet
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import resize_patches


def some_set(size: int, groups: list[int], seed: int = 0, **options: object) -> PatchSet:
    pixels = np.random.default_rng(seed).integers(0, 256, (len(groups), size, size), dtype=np.uint8)
    return PatchSet([pixels[:3], pixels[3:]], groups, **options)  # type: ignore[arg-type]


FIRST = some_set(64, [7, 7, 9, 9, 9], sequences=[1, 1, 2, 2, 2], sequence_names=["none", "here", "there"], extent=12.0)
SECOND = some_set(
    65, [9, 9, 3, 3, 7, 7], 1, sequences=[0, 0, 1, 1, 1, 1], sequence_names=["there", "b"], extent=5.0,
    overlaps=np.array([[3, 7], [9, 3]]), labels={"image": [0, 1] * 3},
)  # fmt: skip
UNION = UnitedSet([FIRST, SECOND], ["one", "two"])


def test_groups_and_sequences_of_different_parts_differ() -> None:
    assert len(UNION) == 11
    parts = ((FIRST, slice(0, 5)), (SECOND, slice(5, 11)))
    for part, rows in parts:
        for ids, united in ((part.groups, UNION.groups[rows]), (part.sequences, UNION.sequences[rows])):
            np.testing.assert_array_equal(ids[:, None] == ids, united[:, None] == united)
    assert not set(UNION.groups[:5]) & set(UNION.groups[5:])
    assert not set(UNION.sequences[:5]) & set(UNION.sequences[5:])
    names = [UNION.sequence_names[number] for number in UNION.sequences]
    assert names == ["here"] * 2 + ["one/there"] * 3 + ["two/there"] * 2 + ["b"] * 4


def test_overlaps_name_the_same_patches() -> None:
    def overlapping(data: PatchSet, offset: int) -> set[frozenset[int]]:
        return {
            frozenset((offset + int(i), offset + int(j)))
            for a, b in data.overlaps
            for i in np.flatnonzero(data.groups == a)
            for j in np.flatnonzero(data.groups == b)
        }

    assert overlapping(UNION, 0) == overlapping(SECOND, 5)
    assert len(overlapping(UNION, 0)) == 8


def test_patches_are_resized_as_a_networks_input() -> None:
    assert UNION.size == 64
    order = [10, 0, 6, 4, 5]
    taken = UNION.take(order)
    assert (str(taken.dtype), taken.shape) == ("uint8", (5, 64, 64))
    for row, index in enumerate(order):
        part, own = (FIRST, index) if index < 5 else (SECOND, index - 5)
        expected = resize_patches(torch.from_numpy(part.take([own])), 64)[0, 0].round().to(torch.uint8)
        np.testing.assert_array_equal(taken[row], expected.numpy())


@pytest.mark.parametrize(
    ("sizes", "size"),
    [((64, 65), 64), ((51, 64), 64), ((51, 32), 51), ((65, 51), 64), ((128, 64), 128), ((64, 130), 128)],
)
def test_no_network_loses_pixels(sizes: tuple[int, int], size: int) -> None:
    networks = [Architecture(surround=number) for number in (0, 1, 2)]
    input_sizes = {build_network(network).input_size for network in networks}
    assert sorted(input_sizes) == [32, *reversed(READ_SIZES)]
    union = UnitedSet([some_set(each, [0, 0, 1, 1]) for each in sizes], ["a", "b"])
    assert union.size == size
    assert all(read <= union.size for read in input_sizes if read <= max(sizes))


def test_parts_stay_on_disk(tmp_path: Path) -> None:
    SECOND.save(tmp_path / "second")
    opened = PatchSet.open(tmp_path / "second")
    union = UnitedSet([opened, FIRST], ["two", "one"])
    assert UnitedSet([opened, some_set(65, [0, 0, 1, 1])], ["a", "b"]).size == 64
    np.testing.assert_array_equal(union.take(range(6)), UNION.take(range(5, 11)))
    kept = UnitedSet([FIRST, some_set(64, [0, 0, 1, 1])], ["a", "b"])
    assert np.shares_memory(np.asarray(kept.shards[0]), np.asarray(FIRST.shards[0]))


def test_selected_and_saved_patches_are_those_of_the_union(tmp_path: Path) -> None:
    mask = np.arange(11) % 3 != 0
    some = UNION.select(mask)
    np.testing.assert_array_equal(some.take(range(len(some))), UNION.take(np.flatnonzero(mask)))
    some.save(tmp_path / "some")
    np.testing.assert_array_equal(PatchSet.open(tmp_path / "some").take(range(len(some))), some.take(range(len(some))))


def test_the_extent_is_that_of_most_patches() -> None:
    assert UNION.extent == 5.0
    assert UnitedSet([SECOND.select(SECOND.sequences == 0), FIRST], ["two", "one"]).extent == 12.0


def test_scenes_are_those_of_the_parts() -> None:
    photos = some_set(
        64, [0, 0, 1, 1, 2, 2], sequences=[0, 0, 1, 1, 2, 2], labels={"photo": [0, 0, 1, 1, 2, 2]},
        photo_names=["hall/a.png", "hall/b.png", "c.png"],
    )  # fmt: skip
    union = UnitedSet([FIRST, photos], ["one", "photos"])
    assert [(scene.name, scene.sequences) for scene in find_scenes(union)] == [
        ("one/here", (0,)), ("one/there", (1,)), ("photos/hall", (2, 3)), ("photos/sequence 2", (4,)),
    ]  # fmt: skip
    parts = split_scenes(union, 0.3, seed=0)
    assert len(parts[TRAIN].data) + len(parts[VAL].data) == len(union)
    assert not set(parts[TRAIN].data.sequences) & set(parts[VAL].data.sequences)


def test_it_reads_as_its_parts_and_needs_their_names() -> None:
    assert repr(UNION) == f"{FIRST} + {SECOND}"
    with pytest.raises(DoapError, match="the parts of a union need different names, not a, a"):
        UnitedSet([FIRST, SECOND], ["a", "a"])
