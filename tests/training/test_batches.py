import numpy as np
import pytest
import torch

from doap import DoapError, FrameSet, PatchSet
from doap.datasets.batches.pool_sampling import PoolSampler, SequencePairSampler
from doap.datasets.batches.resident_patches import PatchSource
from doap.datasets.batches.sampling import EveryGroupFirstSampler, GroupSampler
from doap.datasets.batches.source_sampling import SourceSampler
from doap.datasets.build.assembly import frame_set_from_photos
from doap.images.frames import detect_dog
from doap.training.batches import Batches, make_sampler
from doap.training.recipe import Recipe


@pytest.fixture
def patches() -> PatchSet:
    random = np.random.default_rng(0)
    groups = np.arange(400) // 4
    overlaps = np.array([[0, 1], [5, 9]])
    return PatchSet([random.integers(0, 256, (400, 32, 32), dtype=np.uint8)], groups, groups // 25, overlaps=overlaps)


@pytest.fixture
def frames(photo: np.ndarray) -> FrameSet:
    return frame_set_from_photos([("a", photo[:, :256]), ("b", photo[:, 256:])], lambda image: detect_dog(image, 80))


@pytest.mark.parametrize(
    ("settings", "sampler"),
    [
        ({}, GroupSampler),
        ({"views_per_group": 2}, GroupSampler),
        ({"sampling": "every-group-first"}, EveryGroupFirstSampler),
        ({"sampling": "sequence-pairs"}, SequencePairSampler),
        ({"sampling": "pools", "views_per_group": 2, "groups_per_sequence": 8}, PoolSampler),
    ],
)
def test_a_recipe_names_its_sampler(patches: PatchSet, settings: dict[str, object], sampler: type) -> None:
    recipe = Recipe(batch_size=64, **settings)
    assert isinstance(make_sampler(patches, recipe), sampler)
    batch = next(Batches(patches, recipe, "cpu", 32).draw(0, 0))
    assert len(batch.pixels) == 64
    assert np.bincount(batch.groups)[np.unique(batch.groups)].tolist() == [recipe.views_per_group or 4] * (
        64 // (recipe.views_per_group or 4)
    )


def test_shares_are_of_a_frame_sets_sources(frames: FrameSet, patches: PatchSet) -> None:
    recipe = Recipe(batch_size=32, sampling="pools", views_per_group=2, groups_per_sequence=8, source_weights={"views": 1})
    assert isinstance(make_sampler(frames, recipe), SourceSampler)
    batch = next(Batches(frames, recipe, "cpu", 32).draw(0))
    assert len(batch.pixels) == 32
    with pytest.raises(DoapError, match="0 sequences have 8 groups of tracks"):
        make_sampler(frames, recipe.model_copy(update={"source_weights": {"tracks": 1.0}}))
    with pytest.raises(DoapError, match="needs a frame set"):
        make_sampler(patches, recipe)


def test_batches_are_the_patches_their_groups_and_what_to_ignore(patches: PatchSet) -> None:
    recipe = Recipe(batch_size=400)
    (batch,) = Batches(patches, recipe, "cpu", 32).draw(0, 0)
    (indices,) = GroupSampler(patches, 400, 0).batches(0)
    np.testing.assert_array_equal(batch.pixels.numpy(), patches.take(indices))
    np.testing.assert_array_equal(batch.groups.numpy(), patches.groups[indices])
    assert batch.ignore is not None
    ignored = batch.ignore.table[batch.ignore.labels][:, batch.ignore.labels].numpy()
    pairs = {frozenset(pair) for pair in patches.overlaps.tolist()}
    expected = [[frozenset((int(a), int(b))) in pairs for b in batch.groups] for a in batch.groups]
    np.testing.assert_array_equal(ignored, expected)


def test_without_overlaps_nothing_is_ignored(patches: PatchSet) -> None:
    plain = PatchSet(patches.shards, patches.groups)
    assert next(Batches(plain, Recipe(batch_size=100), "cpu", 32).draw(0, 0)).ignore is None


@pytest.mark.parametrize("augment", [False, True])
def test_a_batch_of_fresh_views_is_the_same_whenever_it_is_drawn(frames: FrameSet, augment: bool) -> None:
    batches = Batches(frames, Recipe(batch_size=120, views_per_group=4, augment=augment, seed=3), "cpu", 32)
    all_of_them = list(batches.draw(1, 0))
    assert len(all_of_them) == batches.count(1) >= 3
    for resumed, whole in zip(batches.draw(1, 2), all_of_them[2:], strict=True):
        assert torch.equal(resumed.pixels, whole.pixels)
    other = next(batches.draw(2, 0))
    assert not torch.equal(other.pixels, all_of_them[0].pixels)


def test_augmentation_changes_patches_and_nothing_else(frames: FrameSet) -> None:
    plain, turned = (
        next(Batches(frames, Recipe(batch_size=120, views_per_group=4, augment=augment), "cpu", 32).draw(0, 0))
        for augment in (False, True)
    )
    assert torch.equal(plain.groups, turned.groups)
    assert not torch.equal(plain.pixels, turned.pixels)
    sums = [batch.pixels.flatten(1).sum(1, dtype=torch.int64) for batch in (plain, turned)]
    assert torch.equal(*sums)


class Spy:
    """A source that remembers what it was asked for."""

    def __init__(self, source: PatchSource) -> None:
        self.source = source
        self.zooms: list[np.ndarray] = []

    def take(
        self, indices: np.ndarray, random: torch.Generator, zooms: torch.Tensor | None = None, jitter: float = 1.0
    ) -> torch.Tensor:
        assert zooms is not None
        self.zooms.append(zooms.cpu().numpy())
        return self.source.take(indices, random, zooms, jitter)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_group_is_seen_as_close_in_all_its_patches_and_afresh_in_each_batch(frames: FrameSet, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    batches = Batches(frames, Recipe(batch_size=120, views_per_group=4, zoom=2.0, seed=3), device, 32)
    spy = batches._source = Spy(batches._source)
    drawn = [*batches.draw(0), *batches.draw(1)]
    of_group: dict[int, set[float]] = {}
    for batch, zooms in zip(drawn, spy.zooms, strict=True):
        for group in np.unique(batch.groups):
            (zoom,) = set(zooms[batch.groups.numpy() == group].tolist())
            of_group.setdefault(int(group), set()).add(zoom)
    values = np.concatenate([list(zooms) for zooms in of_group.values()])
    assert 0 <= values.min() < 0.1
    assert 1.9 < values.max() <= 2
    np.testing.assert_allclose(np.quantile(values, [0.25, 0.5, 0.75]), [0.5, 1, 1.5], atol=0.2)
    assert max(map(len, of_group.values())) == 2  # another one in each epoch
    again = Batches(frames, Recipe(batch_size=120, views_per_group=4, zoom=2.0, seed=3), device, 32)
    for resumed, whole in zip(again.draw(1, 1), drawn[batches.count(0) + 1 :], strict=True):
        assert torch.equal(resumed.pixels, whole.pixels)


def test_ranks_zoom_whole_groups(frames: FrameSet) -> None:
    recipe = Recipe(batch_size=120, views_per_group=4, zoom=2.0)
    one = next(Batches(frames, recipe, "cpu", 32).draw(0))
    for rank in range(2):
        batches = Batches(frames, recipe, "cpu", 32, rank=rank, ranks=2)
        spy = batches._source = Spy(batches._source)
        batch = next(batches.draw(0))
        assert torch.equal(batch.groups, one.groups[batch.rows])
        assert len(spy.zooms[0]) == len(batch.groups)
        assert all(len(set(spy.zooms[0][batch.groups.numpy() == g].tolist())) == 1 for g in np.unique(batch.groups))


@pytest.mark.parametrize("setting", ["zoom=0.5", "jitter=0.5"])
def test_a_patch_set_cannot_be_cut_anew(patches: PatchSet, setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(
        DoapError, match=rf"{setting} cuts patches anew from photos, and PatchSet\(400 patches.* has none"
    ) as caught:
        Batches(patches, Recipe.model_validate({key: float(value)}), "cpu", 32)
    assert "\n" not in str(caught.value)


def test_what_a_set_cannot_give_is_told(frames: FrameSet, patches: PatchSet) -> None:
    with pytest.raises(DoapError, match="set views_per_group"):
        make_sampler(frames, Recipe())
    with pytest.raises(DoapError, match="needs views_per_group"):
        make_sampler(patches, Recipe(sampling="pools"))
