"""Patches of a group before and after a Spatial Transformer, and their correlation (paper, appendix B)."""

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
from doap.networks.descriptor import Descriptor, resize_patches
from doap.networks.network import normalise
from doap.networks.spatial_transformer import SpatialTransformer, TransformedNetwork, resample
from doap.types import StepProgress, no_step_progress

MAX_PATCHES = 16  # per group, as many as HPatches has
MAX_GROUPS = 200  # with fewer, the agreement would depend on the choice of groups

ROWS_OF_ONE_MODEL = ("original", "aligned, borders repeated", "aligned the same, zeros beyond")
ROWS_OF_TWO_MODELS = ("original", "aligned, trained with repeated borders", "aligned, trained with zero padding")

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class AlignedGroup:
    """The n patches of a group, before and after alignment.

    Attributes:
        number: Id of the group in its set.
        sequence: Name of its sequence.
        originals: (n, 42, 42), the input of the transformer.
        aligned: (n, 32, 32), borders repeated.
        aligned_zeros: (n, 32, 32), black beyond the patch; by the same transformations, or by those of a second model.
    """

    number: int
    sequence: str
    originals: Pixels
    aligned: Pixels
    aligned_zeros: Pixels


@dataclass(frozen=True)
class Agreement:
    """Mean correlation of the pixels of two patches.

    Attributes:
        within: Of patches of the same group, averaged over groups. Alignment should increase it.
        between: Of patches of different groups. If it increases as well, all patches have become more similar, by
            zooming in or by black corners.
    """

    within: float
    between: float


@dataclass(frozen=True)
class Alignment:
    """Sampled groups, and the agreement of their patches.

    Attributes:
        groups: Groups in random order.
        before: Agreement of the originals at the resolution of the aligned patches.
        after: Agreement of the aligned patches.
        after_zeros: Agreement of the aligned patches with black beyond the patch.
        row_names: What the rows of the figure show, which are the originals and the two alignments.
    """

    groups: list[AlignedGroup]
    before: Agreement
    after: Agreement
    after_zeros: Agreement
    row_names: tuple[str, str, str]

    @property
    def rows(self) -> dict[str, Agreement]:
        """Agreement of each row of the figure, by its name."""
        return dict(zip(self.row_names, (self.before, self.after, self.after_zeros), strict=True))


def align(
    model: Descriptor,
    data: PatchSet | FrameSet,
    seed: int = 0,
    progress: StepProgress = no_step_progress,
    zeros_model: Descriptor | None = None,
) -> Alignment:
    """Align the patches of up to 200 groups of a set, sampled from those with the most patches.

    At most 16 patches per group are used; larger groups are not preferred over groups of 16. Frames of a frame set are
    extracted as 16 jittered views per group.

    Args:
        model: Model with a Spatial Transformer.
        data: Set to sample from.
        seed: Seed of groups and views.
        progress: Callback, called as `progress(step, done, total)`.
        zeros_model: Model trained with zero padding, on the same device. Its transformations replace those of `model`
            in the alignment with black beyond the patch, as in the paper's figure.

    Raises:
        DoapError: If a model has no transformer or the wrong padding, or no group has two patches.
    """
    transformers = find_transformers(model, zeros_model)
    members = _sample_groups(data, np.random.default_rng(seed))
    device = next(model.parameters()).device
    indices = np.concatenate(members)
    if isinstance(data, FrameSet):
        pixels = _extract_views(data, indices, device, model.input_size, seed, progress)
    else:
        pixels = torch.from_numpy(data.take(indices)).to(device)
    splits = np.cumsum([len(group) for group in members])[:-1].tolist()
    groups, versions = [], []
    for group, patches in zip(
        members, torch.tensor_split(resize_patches(pixels, model.input_size), splits), strict=True
    ):
        rendered = _align_group(*transformers, patches)
        originals, _, aligned, zeros = (to_bytes(version[:, 0]).cpu().numpy() for version in rendered)
        first = int(group[0])
        groups.append(AlignedGroup(int(data.groups[first]), _sequence_name(data, first), originals, aligned, zeros))
        versions.append(torch.stack([normalise(version).flatten(1) for version in rendered[1:]]).cpu())
        progress("aligning groups", len(groups), len(members))
    before, after, after_zeros = (_agreement([version[i] for version in versions]) for i in range(3))
    row_names = ROWS_OF_ONE_MODEL if zeros_model is None else ROWS_OF_TWO_MODELS
    return Alignment(groups, before, after, after_zeros, row_names)


def find_transformers(
    model: Descriptor, zeros_model: Descriptor | None = None
) -> tuple[SpatialTransformer, SpatialTransformer]:
    """Return the transformers for the alignments with repeated borders and with zeros; see `align`.

    Raises:
        DoapError: If a model has no transformer, or if there are two and they were not trained with these paddings.
    """
    if zeros_model is None:
        return transformer_of(model), transformer_of(model)
    for trained, padding in ((model, "replicate"), (zeros_model, "zeros")):
        if transformer_of(trained).padding != padding:
            raise DoapError(f"{trained.name}: give a model trained with transformer_padding: {padding} here")
    return transformer_of(model), transformer_of(zeros_model)


def transformer_of(model: Descriptor) -> SpatialTransformer:
    """Return the model's Spatial Transformer.

    Raises:
        DoapError: If it has none.
    """
    if not isinstance(model.network, TransformedNetwork):
        raise DoapError(f"{model.name}: has no Spatial Transformer; train a model with transformer: true")
    return model.network.transformer


def _sample_groups(data: PatchSet | FrameSet, random: np.random.Generator) -> list[Ids]:
    """Return the items of each group to align, in the order of the set; frames are repeated, once per view."""
    sizes = np.diff(data.members_start)
    counts = np.full_like(sizes, MAX_PATCHES) if data.is_jittered else np.minimum(sizes, MAX_PATCHES)
    shuffled = random.permutation(len(sizes))
    groups = shuffled[np.argsort(-counts[shuffled], kind="stable")[:MAX_GROUPS]]
    groups = groups[counts[groups] > 1]
    if not len(groups):
        raise DoapError("no group of the set has two patches to align with each other")
    return [
        np.sort(np.resize(random.permutation(data.members[start:end]), count))
        for start, end, count in zip(
            data.members_start[groups], data.members_start[groups + 1], counts[groups], strict=True
        )
    ]


def _extract_views(
    frames: FrameSet, indices: Ids, device: torch.device, size: int, seed: int, progress: StepProgress
) -> Tensor:
    """Return jittered views of some frames, (n, size, size) uint8 on the device."""
    needed, positions = np.unique(indices, return_inverse=True)
    selected = frames.select(np.isin(np.arange(len(frames)), needed))
    source = ResidentFrames(selected, device, size, lambda done, total: progress("decoding photos", done, total))
    return source.take(positions.ravel(), torch.Generator(device).manual_seed(seed))


@torch.inference_mode()
def _align_group(
    transformer: SpatialTransformer, zeros_transformer: SpatialTransformer, patches: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return patches, their resampling by the identity, and aligned with repeated borders and with black ones."""
    identity = torch.eye(2, 3, device=patches.device).expand(len(patches), 2, 3)
    return (
        patches,
        resample(patches, identity, "replicate"),
        resample(patches, transformer.predict_transforms(patches), "replicate"),
        resample(patches, zeros_transformer.predict_transforms(patches), "zeros"),
    )


def _agreement(groups: list[Tensor]) -> Agreement:
    """Compute the agreement of normalised patches, (n, pixels) per group."""
    patches = torch.cat(groups)
    correlations = (patches @ patches.T / patches.shape[1]).double().numpy()
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    within = []
    for group in range(len(groups)):
        is_member = labels == group
        block = correlations[np.ix_(is_member, is_member)]
        within.append(block[np.triu_indices(len(block), 1)].mean())
    differs = labels[:, None] != labels
    between = correlations[differs].mean() if differs.any() else float("nan")
    return Agreement(float(np.mean(within)), float(between))


def _sequence_name(data: PatchSet | FrameSet, item: int) -> str:
    number = int(data.sequences[item])
    return data.sequence_names[number] if data.sequence_names else f"sequence {number}"
