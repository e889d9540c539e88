"""What a Spatial Transformer does to the patches of a group (paper, appendix B)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.images.extraction import to_bytes
from doap.networks.descriptor import Descriptor, to_input
from doap.networks.network import normalise
from doap.networks.spatial_transformer import SpatialTransformer, Transformed, sample

MOST_PATCHES = 16  # of a group, as many as HPatches has
MOST_GROUPS = 200  # fewer would measure the choice of groups

Pixels = NDArray[np.uint8]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Group:
    """The n patches of a group, before and after.

    Attributes:
        number: the group's id in its set.
        sequence: name of its sequence.
        originals: (n, 42, 42), as the transformer reads them.
        aligned: (n, 32, 32), borders repeated.
        aligned_zeros: (n, 32, 32) by the same transformations, black beyond the patch.
    """

    number: int
    sequence: str
    originals: Pixels
    aligned: Pixels
    aligned_zeros: Pixels


@dataclass(frozen=True)
class Agreement:
    """How much patches agree: the mean correlation of their pixels over pairs.

    Attributes:
        within: of the same group, the mean over groups. Alignment should raise it.
        between: of different groups. Where this rises too, patches have just become more alike, by zooming in or
            by black corners.
    """

    within: float
    between: float


@dataclass(frozen=True)
class Alignment:
    """Groups drawn at random, and how much their patches agree.

    Attributes:
        groups: in random order.
        before: of the originals at the resolution of the aligned patches.
        after: of the aligned patches.
        after_zeros: of the aligned patches with black beyond the patch.
    """

    groups: list[Group]
    before: Agreement
    after: Agreement
    after_zeros: Agreement


def align(
    model: Descriptor,
    data: PatchSet | FrameSet,
    seed: int = 0,
    progress: Progress = lambda _what, _done, _total: None,
) -> Alignment:
    """Align the patches of up to 200 groups of a set, drawn at random from those with the most patches.

    Up to 16 patches of a group are taken, and more do not count as more. Frames of a frame set are cut as 16
    jittered views a group.

    Args:
        model: with a Spatial Transformer.
        data: where to draw from.
        seed: fixes groups and views.
        progress: told what is being done, how much of it is, and how much there is.

    Raises:
        DoapError: if the model has no transformer, or no group has two patches.
    """
    transformer = transformer_of(model)
    members = _choose(data, np.random.default_rng(seed))
    device = next(model.parameters()).device
    wanted = np.concatenate(members)
    if isinstance(data, FrameSet):
        drawn = _cut_views(data, wanted, device, model.input_size, seed, progress)
    else:
        drawn = torch.from_numpy(data.take(wanted)).to(device)
    patches = torch.tensor_split(to_input(drawn, model.input_size), np.cumsum([len(m) for m in members])[:-1].tolist())
    groups, versions = [], []
    for done, (indices, pixels) in enumerate(zip(members, patches, strict=True), 1):
        shown = _align_group(transformer, pixels)
        originals, _, aligned, zeros = (to_bytes(version[:, 0]).cpu().numpy() for version in shown)
        first = int(indices[0])
        groups.append(Group(int(data.groups[first]), _sequence(data, first), originals, aligned, zeros))
        versions.append(torch.stack([normalise(version).flatten(1) for version in shown[1:]]).cpu())
        progress("aligning groups", done, len(members))
    before, after, after_zeros = (_agreement([version[i] for version in versions]) for i in range(3))
    return Alignment(groups, before, after, after_zeros)


def transformer_of(model: Descriptor) -> SpatialTransformer:
    """The model's Spatial Transformer; a model without one is refused."""
    if not isinstance(model.network, Transformed):
        raise DoapError(f"{model.name}: has no Spatial Transformer; train a model with transformer: true")
    return model.network.transformer


def _choose(data: PatchSet | FrameSet, random: np.random.Generator) -> list[Ids]:
    """The items of each group to align, in the order of the set; frames come several times, for several views."""
    sizes = np.diff(data.members_start)
    counts = np.full_like(sizes, MOST_PATCHES) if data.fresh else np.minimum(sizes, MOST_PATCHES)
    shuffled = random.permutation(len(sizes))
    chosen = shuffled[np.argsort(-counts[shuffled], kind="stable")[:MOST_GROUPS]]
    chosen = chosen[counts[chosen] > 1]
    if not len(chosen):
        raise DoapError("no group of the set has two patches to align with each other")
    return [
        np.sort(np.resize(random.permutation(data.members[start:end]), count))
        for start, end, count in zip(
            data.members_start[chosen], data.members_start[chosen + 1], counts[chosen], strict=True
        )
    ]


def _cut_views(
    frames: FrameSet, indices: Ids, device: torch.device, size: int, seed: int, progress: Progress
) -> Tensor:
    """Jittered views of some frames, (n, size, size) uint8 on the device."""
    needed, places = np.unique(indices, return_inverse=True)
    part = frames.part(np.isin(np.arange(len(frames)), needed))
    photos, decoded = len(np.unique(part.photos)), 0

    def count() -> None:
        nonlocal decoded
        decoded += 1
        progress("decoding photos", decoded, photos)

    source = ResidentFrames(part, device, size, count)
    return source.draw(places.ravel(), torch.Generator(device).manual_seed(seed))


@torch.inference_mode()
def _align_group(transformer: SpatialTransformer, patches: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Patches, and they as sampled by the identity, aligned with repeated borders, and aligned with black ones."""
    transforms = transformer.transforms(patches)
    identity = torch.eye(2, 3, device=patches.device).expand(len(patches), 2, 3)
    return (
        patches,
        sample(patches, identity, "replicate"),
        sample(patches, transforms, "replicate"),
        sample(patches, transforms, "zeros"),
    )


def _agreement(groups: list[Tensor]) -> Agreement:
    """Of normalised patches, (n, pixels) a group."""
    patches = torch.cat(groups)
    correlations = (patches @ patches.T / patches.shape[1]).double().numpy()
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    within = []
    for group in range(len(groups)):
        here = labels == group
        block = correlations[np.ix_(here, here)]
        within.append(block[np.triu_indices(len(block), 1)].mean())
    other = labels[:, None] != labels
    between = correlations[other].mean() if other.any() else float("nan")
    return Agreement(float(np.mean(within)), float(between))


def _sequence(data: PatchSet | FrameSet, item: int) -> str:
    number = int(data.sequences[item])
    return data.sequence_names[number] if data.sequence_names else f"sequence {number}"
