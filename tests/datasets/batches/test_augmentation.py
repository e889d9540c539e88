import torch

from doap.datasets.batches.augmentation import flip_and_rotate, sample_symmetries


def symmetries(patch: torch.Tensor) -> list[torch.Tensor]:
    return [turned for k in range(4) for turned in (patch.rot90(k), patch.rot90(k).flip(1))]


def which(patches: torch.Tensor, changed: torch.Tensor) -> list[int]:
    """Return the symmetry that maps each patch to the other; exactly one must."""
    numbers = []
    for patch, other in zip(patches, changed, strict=True):
        equal = [torch.equal(s, other) for s in symmetries(patch)]
        assert sum(equal) == 1
        numbers.append(equal.index(True))
    return numbers


def test_each_group_gets_one_of_all_eight_symmetries(device: str) -> None:
    groups = torch.randint(0, 400, (1600,)) * 7 - 100
    patches = torch.randint(0, 256, (1600, 5, 5), dtype=torch.uint8, device=device)
    changed = flip_and_rotate(patches, sample_symmetries(groups, torch.Generator(device).manual_seed(0)))
    assert changed.dtype == torch.uint8
    assert changed.device == patches.device
    number = torch.tensor(which(patches, changed))
    distinct = sorted(set(groups.tolist()))
    per_group = torch.tensor([int(number[groups == g][0]) for g in distinct])
    for group, expected in zip(distinct, per_group, strict=True):
        assert (number[groups == group] == expected).all()
    assert (torch.bincount(per_group, minlength=8) > 25).all()  # about 49 each


def test_channels_types_and_seed() -> None:
    patches, groups = torch.rand(12, 1, 6, 6), torch.arange(12) // 3
    sampled = [sample_symmetries(groups, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    first, again, other = (flip_and_rotate(patches, symmetries) for symmetries in sampled)
    assert first.shape == patches.shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    flat = flip_and_rotate(patches[:, 0], sampled[0])
    assert torch.equal(first[:, 0], flat)
