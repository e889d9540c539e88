import math

import numpy as np
import pytest
import torch

from doap.datasets.label_mining.hog import hog


def textbook(patch: np.ndarray) -> np.ndarray:
    """Compute the HOG of one patch from the definition, pixel by pixel and cell by cell: (cells, cells, 31)."""
    size = len(patch)
    cells = size // 8
    histogram = np.zeros((cells, cells, 18))
    for y in range(1, size - 1):
        for x in range(1, size - 1):
            gx, gy = patch[y, x + 1] - patch[y, x - 1], patch[y + 1, x] - patch[y - 1, x]
            scores = [gx * math.cos(k * math.pi / 9) + gy * math.sin(k * math.pi / 9) for k in range(18)]
            best = int(np.argmax(scores))
            for cy in range(cells):
                for cx in range(cells):
                    wy = max(0.0, 1 - abs((y + 0.5) / 8 - (cy + 0.5)))
                    wx = max(0.0, 1 - abs((x + 0.5) / 8 - (cx + 0.5)))
                    histogram[cy, cx, best] += math.hypot(gx, gy) * wx * wy
    undirected = histogram[..., :9] + histogram[..., 9:]
    norm = (undirected**2).sum(2)
    result = np.zeros((cells, cells, 31))
    for cy in range(cells):
        for cx in range(cells):
            for number, (dy, dx) in enumerate([(-1, -1), (-1, 1), (1, -1), (1, 1)]):
                by, bx = min(max(cy + dy, 0), cells - 1), min(max(cx + dx, 0), cells - 1)
                factor = 1 / math.sqrt(norm[cy, cx] + norm[by, cx] + norm[cy, bx] + norm[by, bx] + 1e-4)
                directed = np.minimum(histogram[cy, cx] * factor, 0.2)
                folded = np.minimum(undirected[cy, cx] * factor, 0.2)
                result[cy, cx, :18] += directed / 2
                result[cy, cx, 18:27] += folded / 2
                result[cy, cx, 27 + number] = folded.sum() / math.sqrt(18)
    return result


@pytest.mark.parametrize("strength", [1.0, 0.01])  # the second makes the 1e-4 of the norms matter
def test_equals_the_textbook(strength: float) -> None:
    patches = np.random.default_rng(0).random((3, 24, 24)).cumsum(1).cumsum(2)
    patches = (patches / patches.max() + np.random.default_rng(1).random((3, 24, 24)) * 0.1) * strength
    values = hog(torch.from_numpy(patches))
    assert values.shape == (3, 3, 3, 31)
    np.testing.assert_allclose(values.numpy(), np.stack([textbook(p) for p in patches]), atol=1e-9)


def test_float32_patches_of_64_have_1984_values(photo: np.ndarray) -> None:
    patches = torch.from_numpy(photo[200:264, 200:264].copy())[None].double() / 255
    single, double = hog(patches.float()), hog(patches)
    assert single.shape == (1, 8, 8, 31)
    torch.testing.assert_close(single.double(), double, atol=1e-4, rtol=0)


def test_flat_patches_give_zeros() -> None:
    assert not hog(torch.full((2, 64, 64), 0.7)).any()


@pytest.mark.parametrize("k", range(18))
def test_an_edge_lands_in_the_bin_of_its_gradient(k: int) -> None:
    angle = math.radians(20 * k)
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    ramp = (x * math.cos(angle) + y * math.sin(angle)) / 128
    cell = hog(ramp[None])[0, 4, 4]
    assert cell[:18].argmax() == k
    assert cell[18:27].argmax() == k % 9
    assert (cell[:18] > 0).sum() == 1


@pytest.mark.parametrize(("sign", "bin_"), [(1, 4), (-1, 13)])
def test_vertical_gradients_between_two_bins_go_to_the_lower(sign: int, bin_: int) -> None:
    ramp = torch.arange(64.0)[:, None].expand(64, 64) / 64 * sign
    assert hog(ramp[None])[0, 4, 4, :18].argmax() == bin_


def test_flipping_a_patch_permutes_cells_and_bins() -> None:
    patches = torch.rand(4, 64, 64, dtype=torch.float64)
    directed = [(9 - k) % 18 for k in range(18)]
    undirected = [18 + (9 - k) % 9 for k in range(9)]
    flipped = hog(patches).flip(2)[..., [*directed, *undirected, 28, 27, 30, 29]]
    torch.testing.assert_close(hog(patches.flip(2)), flipped)


def test_contrast_hardly_matters() -> None:
    patches = torch.rand(4, 64, 64, dtype=torch.float64)
    torch.testing.assert_close(hog(patches / 2 + 0.3), hog(patches), atol=1e-3, rtol=0)
