import numpy as np
import pytest
import torch

from doap.images.extraction import Pyramid, extract_patches
from doap.images.frames import detect_dog
from doap.images.jitter.views import (
    LEVELS,
    JitterFactors,
    JitterLevel,
    jitter_frames,
    jitter_light,
    jittered_views,
    measure_overlap,
    mixed_levels,
    sample_tilts,
    tilted_grid,
)
from doap.types import Grey


@pytest.mark.parametrize(("level", "expected"), [("easy", 0.85), ("hard", 0.72), ("tough", 0.60)])
def test_levels_overlap_as_in_hpatches(level: str, expected: float) -> None:
    measured = measure_overlap(level, seed=1)
    print(f"{level}: {measured:.3f}")
    assert measured == pytest.approx(expected, abs=0.015)


def test_without_jitter_a_view_is_the_plain_patch(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEVELS, "none", JitterLevel(*[0.0] * 10))
    frames = detect_dog(photo, 200)
    plain = extract_patches(photo, frames, 32, 12).astype(int)
    view = jittered_views(Pyramid(photo), frames, "none", 32, 12, torch.Generator()).numpy()
    assert np.abs(view - plain).max() <= 1  # the order of rounding


def test_harder_levels_differ_more(photo: Grey) -> None:
    frames = detect_dog(photo, 400)
    plain = extract_patches(photo, frames, 32, 12).astype(float)
    centred = plain - plain.mean((1, 2), keepdims=True)
    agreement = []
    for level in LEVELS:
        view = jittered_views(Pyramid(photo), frames, level, 32, 12, torch.Generator().manual_seed(0)).numpy()
        assert view.shape == (400, 32, 32)
        assert view.dtype == np.uint8
        other = view - view.mean((1, 2), keepdims=True)
        norm = np.linalg.norm(centred, axis=(1, 2)) * np.linalg.norm(other, axis=(1, 2))
        agreement.append(float(((centred * other).sum((1, 2)) / np.maximum(norm, 1e-9)).mean()))
    assert agreement[0] > 0.75
    assert agreement[0] > agreement[1] > agreement[2] > 0.3


def test_the_seed_determines_the_views(photo: Grey) -> None:
    frames, pyramid = detect_dog(photo, 50), Pyramid(photo)
    one, same, other = (
        jittered_views(pyramid, frames, "hard", 32, 12, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def only(**strength: float) -> JitterLevel:
    return JitterLevel(**{**dict.fromkeys(JitterLevel.__dataclass_fields__, 0.0), **strength})


def random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_each_geometric_jitter_has_its_strength() -> None:
    frames = torch.tensor([[[3.0, 0, 50], [0, 3, 60]]]).expand(2000, 2, 3)
    rotated = jitter_frames(frames, only(rotation=10), random())
    angles = torch.rad2deg(torch.atan2(rotated[:, 1, 0], rotated[:, 0, 0]))
    assert angles.std() == pytest.approx(10, rel=0.1)
    torch.testing.assert_close(rotated[:, :, :2].det(), frames[:, :, :2].det())
    shifted = jitter_frames(frames, only(shift=0.2), random())
    assert (shifted - frames)[:, :, 2].std() == pytest.approx(0.2 * 3, rel=0.1)
    torch.testing.assert_close(shifted[:, :, :2], frames[:, :, :2])
    scaled = jitter_frames(frames, only(scale=0.3), random())
    assert (scaled[:, :, :2].det().sqrt() / 3).log2().std() == pytest.approx(0.3, rel=0.1)
    stretched = jitter_frames(frames, only(stretch=0.4), random())
    singular = torch.linalg.svdvals(stretched[:, :, :2])
    assert (singular[:, 0] / singular[:, 1]).log2().pow(2).mean().sqrt() == pytest.approx(0.4, rel=0.1)
    torch.testing.assert_close(stretched[:, :, :2].det(), frames[:, :, :2].det())


def test_each_jitter_of_the_light_has_its_strength() -> None:
    x = torch.linspace(60, 200, 32).expand(500, 32, 32).contiguous()
    torch.testing.assert_close(jitter_light(x, only(), random()), x)
    noisy = jitter_light(x, only(noise=6), random()) - x
    assert noisy.std((1, 2)).min() > 0
    assert noisy.std((1, 2)).max() < 6 * 1.2
    gain = jitter_light(x, only(contrast=0.5), random())
    torch.testing.assert_close(gain.mean((1, 2)), x.mean((1, 2)))
    assert (gain.std((1, 2)) / x.std((1, 2))).log2().std() == pytest.approx(0.5, rel=0.15)
    tilted = jitter_light(x, only(gradient=20), random()) - x
    torch.testing.assert_close(tilted.mean((1, 2)), torch.zeros(500), atol=1e-3, rtol=0)
    assert tilted[:, 0, 0].std() == pytest.approx(20 * 2**0.5, rel=0.1)
    step = torch.zeros(500, 32, 32)
    step[:, :, 16:] = 200
    blurred = jitter_light(step, only(blur=1.5), random())
    steepest = blurred.diff(dim=2).amax(2)[:, 0]
    assert (steepest <= 200).all()
    assert steepest.mean() < 140
    torch.testing.assert_close(blurred.mean((1, 2)), step.mean((1, 2)), rtol=1e-3, atol=0)
    gamma = jitter_light(x, only(gamma=0.5), random())
    assert (gamma.diff(dim=2) > 0).all()
    assert not torch.allclose(gamma, x, atol=5)


def test_the_visible_share_is_the_centre_of_the_whole_grid() -> None:
    tilts = sample_tilts(5, LEVELS["tough"], random())
    assert len(torch.unique(tilts)) == 10
    whole = tilted_grid(tilts, 64)
    centre = tilted_grid(tilts, 32, torch.full((5,), 0.5))
    for a, b in zip(whole, centre, strict=True):
        torch.testing.assert_close(a[:, 32:96, 32:96], b)


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_the_filter_is_wide_enough_for_the_blur(factor: float) -> None:
    factors = JitterFactors(blur=factor)
    assert mixed_levels(torch.tensor([3]), factors).blur == pytest.approx([factor * 1.1])
    impulse = torch.zeros(400, 63, 63)
    impulse[:, 31, 31] = 200.0
    blurred = jitter_light(impulse, only(blur=1.1 * factor), random(), factors.blur_radius)
    offsets = torch.arange(63) - 31.0
    deviations = ((blurred.sum(1) * offsets**2).sum(1) / 200).sqrt()
    assert deviations.max() == pytest.approx(1.1 * factor, rel=0.05)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [32, 64])
def test_kernels_on_a_gpu_change_light_as_torch_does(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = 255 * torch.rand(300, size, size, device="cuda")
    values[0], values[1, :4] = 0, 300  # no light, and more than there can be
    strength = mixed_levels(torch.arange(300, device="cuda") % 4, JitterFactors(blur=1.3))
    fused = jitter_light(values, strength, torch.Generator("cuda").manual_seed(0), 4)
    monkeypatch.setattr("doap.images.jitter.views.uses_triton", lambda _: False)
    plain = jitter_light(values, strength, torch.Generator("cuda").manual_seed(0), 4)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=0.01)
