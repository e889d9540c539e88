import torch

from doap.datasets.batches.augmentation import draw_symmetries, flip_and_turn


def symmetries(patch: torch.Tensor) -> list[torch.Tensor]:
    return [turned for k in range(4) for turned in (patch.rot90(k), patch.rot90(k).flip(1))]


def which(patches: torch.Tensor, changed: torch.Tensor) -> list[int]:
    """Which of the 8 symmetries made each patch of the other; every patch must be one and only one."""
    found = []
    for patch, other in zip(patches, changed, strict=True):
        equal = [torch.equal(s, other) for s in symmetries(patch)]
        assert sum(equal) == 1
        found.append(equal.index(True))
    return found


def test_each_group_gets_one_of_all_eight_symmetries(device: str) -> None:
    groups = torch.randint(0, 400, (1600,)) * 7 - 100
    patches = torch.randint(0, 256, (1600, 5, 5), dtype=torch.uint8, device=device)
    changed = flip_and_turn(patches, draw_symmetries(groups, torch.Generator(device).manual_seed(0)))
    assert changed.dtype == torch.uint8
    assert changed.device == patches.device
    number = torch.tensor(which(patches, changed))
    per_group = torch.tensor([int(number[groups == g][0]) for g in groups.unique()])
    for group, expected in zip(groups.unique(), per_group, strict=True):
        assert (number[groups == group] == expected).all()
    assert (torch.bincount(per_group, minlength=8) > 25).all()  # about 49 each


def test_channels_types_and_seed() -> None:
    patches, groups = torch.rand(12, 1, 6, 6), torch.arange(12) // 3
    drawn = [draw_symmetries(groups, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    first, again, other = (flip_and_turn(patches, symmetries) for symmetries in drawn)
    assert first.shape == patches.shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    flat = flip_and_turn(patches[:, 0], drawn[0])
    assert torch.equal(first[:, 0], flat)
