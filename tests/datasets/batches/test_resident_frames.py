import numpy as np
import pytest
import torch

from doap.datasets.batches import resident_frames as module
from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.batches.sampling import GroupSampler
from doap.datasets.sets.frame_set import FrameSet, encode
from doap.images.extraction import are_patches_inside, average_samples, extract_patches, pixel_spacing, to_bytes
from doap.images.frames import detect_dog
from doap.images.jitter.views import (
    JitterFactors,
    jitter_frames,
    jitter_light,
    mixed_levels,
    sample_tilts,
    tilted_grid,
)


@pytest.fixture
def frames(photo: np.ndarray) -> FrameSet:
    """Return a set of the same 150 frames twice: of a single photo, and of a static view in another photo."""
    detected = detect_dog(photo, 150)
    twice = np.concatenate([detected, detected])
    which = np.repeat([0, 1], len(detected))
    return FrameSet([encode(photo), encode(photo)], ["a", "b"], which, twice, np.arange(300), which, which)


def correlation(sampled: np.ndarray, plain: np.ndarray) -> np.ndarray:
    a, b = (x.reshape(len(x), -1).astype(float) for x in (sampled, plain))
    a, b = (x - x.mean(1, keepdims=True) for x in (a, b))
    return np.asarray((a * b).sum(1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1))


def test_sampled_patches_are_views_of_their_frames(frames: FrameSet, photo: np.ndarray, device: str) -> None:
    source = ResidentFrames(frames, device)
    random = torch.Generator(device).manual_seed(0)
    sampled = source.take(np.arange(300), random)
    assert (sampled.shape, sampled.dtype, sampled.device.type) == ((300, 32, 32), torch.uint8, device)
    plain = extract_patches(photo, frames.frames, 32, 12.0)
    own = correlation(sampled.cpu().numpy(), plain)
    other = correlation(sampled.cpu().numpy(), np.roll(plain, 7, axis=0))
    assert np.median(own) > 0.7 > 0.3 > np.median(np.abs(other))
    # Static views are jittered less.
    assert own[150:].mean() > own[:150].mean() + 0.05


def test_a_repeated_item_gives_two_views_and_the_seed_determines_them(frames: FrameSet, device: str) -> None:
    source = ResidentFrames(frames, device, size=24)
    indices = np.repeat(np.arange(0, 300, 10), 2)
    first, again, other = (source.take(indices, torch.Generator(device).manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    different = (first[::2] != first[1::2]).flatten(1).any(1)
    assert different.float().mean() > 0.6  # both may be undisturbed


def test_undisturbed_patches_equal_those_of_extract_patches(frames: FrameSet, photo: np.ndarray, device: str) -> None:
    plain = ResidentFrames(frames, device).take_undisturbed(np.arange(300)).cpu().numpy().astype(int)
    assert np.abs(plain - extract_patches(photo, frames.frames, 32, 12.0)).max() <= 1


def test_jitter_moves_patches_and_leaves_the_light(frames: FrameSet, photo: np.ndarray, device: str) -> None:
    source = ResidentFrames(frames, device)
    plain = extract_patches(photo, frames.frames, 32, 12.0)
    static, moved, more = (
        correlation(
            source.take(np.arange(300), torch.Generator(device).manual_seed(0), jitter=JitterFactors(geometry=factor))
            .cpu()
            .numpy(),
            plain,
        )
        for factor in (0.0, 1.0, 2.0)
    )
    assert np.median(static) > 0.95  # light alone, which nearly cancels
    assert static.mean() > moved.mean() + 0.05 > more.mean() + 0.1


def test_samplers_make_groups_of_single_frames(frames: FrameSet) -> None:
    (batch,) = GroupSampler(frames, 1200, seed=0, views_per_group=4).batches(0)
    groups = frames.groups[batch].reshape(-1, 4)
    assert (groups == groups[:, :1]).all()
    assert len(np.unique(groups)) == 300


def test_a_part_holds_only_its_photos(frames: FrameSet) -> None:
    whole, part = ResidentFrames(frames), ResidentFrames(frames.select(frames.photos == 1))
    assert len(part._atlas) == 1
    of_whole = whole.take(np.array([160, 170]), torch.Generator().manual_seed(0))
    assert torch.equal(of_whole, part.take(np.array([10, 20]), torch.Generator().manual_seed(0)))


def test_patches_seen_closer_are_those_of_a_smaller_extent(
    frames: FrameSet, photo: np.ndarray, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undisturbed patches equal those of `extract_patches`, each read at the pyramid level of its own extent."""
    monkeypatch.setattr(module, "MAX_LEVEL", dict.fromkeys(module.MAX_LEVEL, 0))
    octaves = np.tile([0.0, 0.5, 1.0, 2.0], 75)
    zooms = torch.from_numpy(octaves).float().to(device)
    sampled = ResidentFrames(frames, device).take(np.arange(300), torch.Generator(device), zooms).cpu().numpy()
    for octave in np.unique(octaves):
        rows = octaves == octave
        expected = extract_patches(photo, frames.frames[rows], 32, 12.0 / 2**octave).astype(int)
        assert np.abs(sampled[rows] - expected).max() <= 1


def test_another_extent_gives_the_patches_of_extract_patches_beyond_the_border_too(
    frames: FrameSet, photo: np.ndarray, device: str
) -> None:
    assert not are_patches_inside(frames.frames, photo.shape, 24.0).all()
    source = ResidentFrames(frames, device, 64, extent=24.0)
    for size, extent, view in ((64, 24.0, source), (32, 17.0, source.with_patches(32, 17.0))):
        plain = view.take_undisturbed(np.arange(300)).cpu().numpy().astype(int)
        assert np.abs(plain - extract_patches(photo, frames.frames, size, extent)).max() <= 1


def test_zoom_starts_from_the_extent(frames: FrameSet, photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LEVEL", dict.fromkeys(module.MAX_LEVEL, 0))
    source = ResidentFrames(frames, extent=24.0)
    sampled = source.take(np.arange(300), torch.Generator(), torch.ones(300)).numpy().astype(int)
    assert np.abs(sampled - extract_patches(photo, frames.frames, 32, 12.0)).max() <= 1


def test_factors_of_one_leave_the_views_and_their_random_numbers(frames: FrameSet) -> None:
    source, items = ResidentFrames(frames), torch.arange(300)
    zooms = torch.linspace(0, 2, 300)
    randoms = [torch.Generator().manual_seed(0) for _ in range(4)]
    plain = source.take(items.numpy(), randoms[0], zooms)
    # The views as they were before there were factors of the light.
    levels = (torch.rand(300, generator=randoms[1]) * source._level_counts).long()
    strength = mixed_levels(levels)
    jittered = jitter_frames(source._frames, strength, randoms[1])
    grid = tilted_grid(sample_tilts(300, strength, randoms[1]), 32, torch.exp2(-zooms))
    spacing = pixel_spacing(jittered, 32, 12.0) * torch.exp2(-zooms)
    values = average_samples(source._atlas.sample(jittered, grid, 12.0, spacing, source._photos))
    assert torch.equal(plain, to_bytes(jitter_light(values, strength, randoms[1])))
    assert torch.equal(randoms[0].get_state(), randoms[1].get_state())
    # More blur changes nothing else, and compression comes last.
    blurred = source.take(items.numpy(), randoms[2], zooms, JitterFactors(blur=3.0))
    assert torch.equal(randoms[2].get_state(), randoms[0].get_state())
    unchanged = levels == 0
    assert torch.equal(blurred[unchanged], plain[unchanged])
    steepness = [views[~unchanged].float().diff(dim=2).abs().mean() for views in (plain, blurred)]
    assert steepness[1] < 0.9 * steepness[0]  # the noise stays
    compressed = source.take(items.numpy(), randoms[3], zooms, JitterFactors(compression=0.5))
    changed = (compressed != plain).flatten(1).any(1)
    assert 0.15 < changed.float().mean() <= 0.5
    assert changed[200:].float().mean() > changed[:100].float().mean()  # coarse views are hardly affected
