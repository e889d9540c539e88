from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from doap import DoapError, FrameSet, PatchSet
from doap.datasets.batches.pool_sampling import PoolSampler, SequencePairSampler
from doap.datasets.batches.resident_patches import PatchSource
from doap.datasets.batches.sampling import EveryGroupFirstSampler, GroupSampler
from doap.datasets.batches.source_sampling import SourceSampler
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.united_set import UnitedSet
from doap.images.jitter.views import UNCHANGED, JitterFactors
from doap.training.batches import BatchLoader, TeacherInput, make_sampler
from doap.training.data_cache import Data, DataCache
from doap.training.recipes.recipe import Recipe
from doap.types import Progress, no_progress
from support.trainings import noisy_patches


@pytest.fixture
def patches() -> PatchSet:
    """100 groups of four in four sequences; two pairs of groups overlap."""
    random = np.random.default_rng(0)
    groups = np.arange(400) // 4
    overlaps = np.array([[0, 1], [5, 9]])
    return PatchSet([random.integers(0, 256, (400, 32, 32), dtype=np.uint8)], groups, groups // 25, overlaps=overlaps)


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
def test_a_recipe_names_its_sampler(patches: PatchSet, settings: dict[str, Any], sampler: type) -> None:
    recipe = Recipe(batch_size=64, **settings)
    assert isinstance(make_sampler(patches, recipe), sampler)
    batch = next(BatchLoader(patches, recipe, "cpu", 32).batches(0, 0))
    assert len(batch.pixels) == 64
    views = recipe.views_per_group or 4
    assert np.unique(batch.groups, return_counts=True)[1].tolist() == [views] * (64 // views)


def test_source_weights_are_for_frame_sets(frames: FrameSet, patches: PatchSet) -> None:
    recipe = Recipe(
        batch_size=32, sampling="pools", views_per_group=2, groups_per_sequence=8, source_weights={"views": 1}
    )
    assert isinstance(make_sampler(frames, recipe), SourceSampler)
    batch = next(BatchLoader(frames, recipe, "cpu", 32).batches(0))
    assert len(batch.pixels) == 32
    with pytest.raises(DoapError, match="8 groups of tracks"):
        make_sampler(frames, recipe.model_copy(update={"source_weights": {"tracks": 1.0}}))
    with pytest.raises(DoapError, match="source_weights needs a frame set"):
        make_sampler(patches, recipe)


def test_batches_are_the_patches_their_groups_and_the_pairs_to_ignore(patches: PatchSet) -> None:
    recipe = Recipe(batch_size=400)
    (batch,) = BatchLoader(patches, recipe, "cpu", 32).batches(0, 0)
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
    assert next(BatchLoader(plain, Recipe(batch_size=100), "cpu", 32).batches(0, 0)).ignore is None


@pytest.mark.parametrize("augment", [False, True])
def test_a_batch_of_jittered_views_is_the_same_whenever_it_is_loaded(frames: FrameSet, augment: bool) -> None:
    loader = BatchLoader(frames, Recipe(batch_size=120, views_per_group=4, augment=augment, seed=3), "cpu", 32)
    batches = list(loader.batches(1, 0))
    assert len(batches) == loader.count(1) >= 3
    for resumed, whole in zip(loader.batches(1, 2), batches[2:], strict=True):
        assert torch.equal(resumed.pixels, whole.pixels)
    other = next(loader.batches(2, 0))
    assert not torch.equal(other.pixels, batches[0].pixels)


def test_augmentation_changes_patches_and_nothing_else(frames: FrameSet) -> None:
    plain, turned = (
        next(BatchLoader(frames, Recipe(batch_size=120, views_per_group=4, augment=augment), "cpu", 32).batches(0, 0))
        for augment in (False, True)
    )
    assert torch.equal(plain.groups, turned.groups)
    assert not torch.equal(plain.pixels, turned.pixels)
    sums = [batch.pixels.flatten(1).sum(1, dtype=torch.int64) for batch in (plain, turned)]
    assert torch.equal(*sums)


class RecordingSource:
    """Source of patches that records the zooms it is called with."""

    def __init__(self, source: PatchSource) -> None:
        self._source = source
        self.zooms: list[NDArray[np.float32]] = []

    def take(
        self,
        indices: Ids,
        random: torch.Generator,
        zooms: torch.Tensor | None = None,
        jitter: JitterFactors = UNCHANGED,
    ) -> torch.Tensor:
        assert zooms is not None
        self.zooms.append(zooms.cpu().numpy())
        return self._source.take(indices, random, zooms, jitter)


class RecordingCache(DataCache):
    """Cache whose sources record the zooms they are called with."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[RecordingSource] = []

    def load(
        self,
        data: Data,
        device: str | torch.device,
        size: int,
        progress: Progress = no_progress,
        extent: float | None = None,
    ) -> RecordingSource:
        self.sources.append(RecordingSource(super().load(data, device, size, progress, extent)))
        return self.sources[-1]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_group_has_one_zoom_for_all_its_patches_and_another_in_each_batch(frames: FrameSet, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    recipe, cache = Recipe(batch_size=120, views_per_group=4, zoom=2.0, seed=3), RecordingCache()
    loader = BatchLoader(frames, recipe, device, 32, cache=cache)
    batches = [*loader.batches(0), *loader.batches(1)]
    zooms_of_group: dict[int, set[float]] = {}
    for batch, zooms in zip(batches, cache.sources[0].zooms, strict=True):
        for group in np.unique(batch.groups):
            (zoom,) = set(zooms[batch.groups.numpy() == group].tolist())
            zooms_of_group.setdefault(int(group), set()).add(zoom)
    values = np.concatenate([list(zooms) for zooms in zooms_of_group.values()])
    assert 0 <= values.min() < 0.1
    assert 1.9 < values.max() <= 2
    np.testing.assert_allclose(np.quantile(values, [0.25, 0.5, 0.75]), [0.5, 1, 1.5], atol=0.2)
    assert max(map(len, zooms_of_group.values())) == 2  # another one in each epoch
    again = BatchLoader(frames, recipe, device, 32)
    for resumed, whole in zip(again.batches(1, 1), batches[loader.count(0) + 1 :], strict=True):
        assert torch.equal(resumed.pixels, whole.pixels)


def test_ranks_zoom_whole_groups(frames: FrameSet) -> None:
    recipe = Recipe(batch_size=120, views_per_group=4, zoom=2.0)
    one = next(BatchLoader(frames, recipe, "cpu", 32).batches(0))
    for rank in range(2):
        cache = RecordingCache()
        batch = next(BatchLoader(frames, recipe, "cpu", 32, rank=rank, ranks=2, cache=cache).batches(0))
        (zooms,) = cache.sources[0].zooms
        assert torch.equal(batch.groups, one.groups[batch.rows])
        assert len(zooms) == len(batch.groups)
        assert all(len(set(zooms[batch.groups.numpy() == g].tolist())) == 1 for g in np.unique(batch.groups))


def is_padded(pixels: torch.Tensor) -> torch.Tensor:
    """Return whether the border of each patch has the mean grey value of its centre."""
    side = pixels.shape[1]
    inner = slice(side // 4, side - side // 4)
    centre_means = pixels[:, inner, inner].double().mean((1, 2)).round()
    outside = torch.ones(side, side, dtype=torch.bool)
    outside[inner, inner] = False
    return (pixels[:, outside] == centre_means[:, None]).all(1)


@pytest.fixture
def large_patches() -> PatchSet:
    """50 groups of four, 128x128 pixels."""
    random = np.random.default_rng(0)
    groups = np.arange(200) // 4
    return PatchSet([random.integers(0, 256, (200, 128, 128), dtype=np.uint8)], groups, groups // 25)


@pytest.mark.parametrize("set_name", ["frames", "large_patches"])
def test_a_share_of_the_groups_is_padded_but_not_what_a_teacher_reads(
    set_name: str, request: pytest.FixtureRequest
) -> None:
    data = request.getfixturevalue(set_name)
    recipe = Recipe(batch_size=120, views_per_group=4, surround=2, padding=0.3, augment=True, seed=2)
    teacher = TeacherInput(32, recipe.extent or data.extent)
    padded_groups, groups = 0, 0
    unpadded = recipe.model_copy(update={"padding": 0.0})
    loader, plain = (BatchLoader(data, r, "cpu", 32, teachers=[teacher]) for r in (recipe, unpadded))
    for epoch in range(8):
        for batch, expected in zip(loader.batches(epoch), plain.batches(epoch), strict=True):
            padded = is_padded(batch.pixels)
            assert torch.equal(batch.pixels[~padded], expected.pixels[~padded])
            assert torch.equal(batch.pixels[:, 8:24, 8:24], expected.pixels[:, 8:24, 8:24])
            assert torch.equal(batch.teacher_pixels[0], expected.pixels)
            for group in np.unique(batch.groups):
                (one,) = set(padded[batch.groups.numpy() == group].tolist())
                padded_groups, groups = padded_groups + one, groups + 1
    assert groups >= 200
    assert abs(padded_groups / groups - 0.3) < 4 * (0.21 / groups) ** 0.5
    if set_name == "large_patches":  # jittered by each rank on its own, frames differ
        whole = next(BatchLoader(data, recipe, "cpu", 32).batches(0))
        parts = [next(BatchLoader(data, recipe, "cpu", 32, rank=rank, ranks=2).batches(0)) for rank in range(2)]
        assert torch.equal(torch.cat([part.pixels for part in parts]), whole.pixels)


@pytest.mark.parametrize("set_name", ["frames", "large_patches", "patches"])
def test_what_a_small_student_reads_is_not_padded_for_a_teacher_of_three_extents(
    set_name: str, request: pytest.FixtureRequest
) -> None:
    data = request.getfixturevalue(set_name)
    recipe = Recipe(batch_size=120, views_per_group=4, augment=True)
    teacher = TeacherInput(128, data.extent, surroundings=2)
    batch = next(BatchLoader(data, recipe, "cpu", 32, teachers=[teacher]).batches(0))
    (read,) = batch.teacher_pixels
    if set_name == "patches":  # which have 32x32 pixels: the teacher pads them, as it does otherwise
        assert torch.equal(read, batch.pixels)
        return
    assert read.shape == (len(batch.pixels), 128, 128)
    averages = torch.nn.functional.avg_pool2d(read.float(), 4)
    assert (averages - batch.pixels).abs().mean() < 6  # noise of frame sets differs


def test_padding_is_for_three_extents() -> None:
    with pytest.raises(ValueError, match="padding needs surround=2"):
        Recipe(padding=0.5, surround=1)


def test_small_patches_do_not_train_three_extents(patches: PatchSet, large_patches: PatchSet) -> None:
    recipe = Recipe(batch_size=40, views_per_group=4, surround=2)
    BatchLoader(large_patches, recipe, "cpu", 128)
    with pytest.raises(DoapError, match=r"surround=2 reads three extents, and .* in patches of 32 pixels; use a frame"):
        BatchLoader(patches, recipe, "cpu", 128)
    united = UnitedSet([large_patches, patches], ["large", "small"])
    for data in (united, united.select(np.arange(len(united)) >= len(large_patches))):
        with pytest.raises(DoapError, match=r"shows fewer in patches of 32 pixels"):
            BatchLoader(data, recipe, "cpu", 128)


@pytest.mark.parametrize("setting", ["zoom=0.5", "jitter=0.5", "extent=24.0", "blur=2.0", "compression=0.5"])
def test_a_patch_set_cannot_be_cut_again(patches: PatchSet, setting: str) -> None:
    key, _, value = setting.partition("=")
    message = rf"{setting} needs the photos of a frame set, and PatchSet\(400 patches.* has none"
    with pytest.raises(DoapError, match=message) as caught:
        BatchLoader(patches, Recipe.model_validate({key: float(value)}), "cpu", 32)
    assert "\n" not in str(caught.value)


def test_missing_views_per_group_is_an_error(frames: FrameSet, patches: PatchSet) -> None:
    with pytest.raises(DoapError, match=r"a frame set needs views_per_group; .* --set views_per_group=4"):
        make_sampler(frames, Recipe())
    with pytest.raises(DoapError, match="sampling=pools needs views_per_group"):
        make_sampler(patches, Recipe(sampling="pools"))


def test_patches_of_the_own_sequence_are_ignored_beside_overlaps(patches: PatchSet) -> None:
    recipe = Recipe(batch_size=400, in_sequence_negatives=False)
    across = PatchSet(patches.shards, patches.groups, patches.sequences, overlaps=np.array([[0, 99]]))
    ranks = [next(BatchLoader(across, recipe, "cpu", 32, rank=rank, ranks=2).batches(0)) for rank in (0, 1)]
    (whole,) = BatchLoader(across, recipe, "cpu", 32).batches(0)
    assert whole.ignore is not None
    groups = whole.groups.numpy()
    overlap = [[{a, b} == {0, 99} for b in groups.tolist()] for a in groups.tolist()]
    expected = (groups[:, None] // 25 == groups // 25) | np.array(overlap)
    np.testing.assert_array_equal(whole.ignore.table[whole.ignore.labels][:, whole.ignore.labels].numpy(), expected)
    for batch in ranks:
        assert batch.ignore is not None
        np.testing.assert_array_equal(batch.ignore.table.numpy(), whole.ignore.table.numpy())
        np.testing.assert_array_equal(batch.ignore.labels.numpy(), whole.ignore.labels[batch.rows].numpy())


def test_one_sequence_has_no_negatives_of_others(patches: PatchSet) -> None:
    plain = PatchSet(patches.shards, patches.groups)
    with pytest.raises(DoapError, match="has no negatives of other sequences; use more sequences, or set in_sequence"):
        BatchLoader(plain, Recipe(batch_size=64, in_sequence_negatives=False), "cpu", 32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups_per_sequence": 1, "batch_size": 3}, "a batch holds one group, so .* raise batch_size to 4"),
        (
            {"groups_per_sequence": 8, "batch_size": 16, "in_sequence_negatives": False},
            "a batch holds one sequence, whose patches ignore each other, so .* raise batch_size to 32",
        ),
    ],
)
def test_pools_without_negatives_are_refused(settings: dict[str, object], message: str) -> None:
    recipe = Recipe.model_validate({"sampling": "pools", "views_per_group": 2, **settings})
    with pytest.raises(DoapError, match=message):
        make_sampler(noisy_patches(), recipe)
