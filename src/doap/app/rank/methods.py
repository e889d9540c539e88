"""Methods that describe the frames of a pair."""

import numpy as np
from numpy.typing import NDArray

from doap.app.methods import open_method
from doap.app.rank.pairs import RankPair
from doap.app.rank.ranking import RankedList, rank_items
from doap.choices import DEFAULT_DETECTOR
from doap.errors import DoapError
from doap.features import FrameDescriber, ModelDescriber
from doap.images.extraction import extract_patches
from doap.networks.baselines.sift import IN_IMAGE, WINDOW_SCALES
from doap.types import Frames, Grey

DEVICE = "cpu"  # few keypoints per request
PATCH_PIXELS = 64  # side of the patches on the page


def open_describer(method: str) -> FrameDescriber:
    """Load a method by name; the last ones are kept.

    Raises:
        DoapError: If there is no such method.
    """
    return IN_IMAGE.get(method) or ModelDescriber(open_method(method, DEVICE))


def rank_pair(pair: RankPair, method: str, query: int) -> RankedList:
    """Rank the frames of the second picture for one frame of the first.

    Raises:
        DoapError: If there is no such method or frame.
    """
    if not 0 <= query < len(pair.first.frames):
        raise DoapError(f"keypoint {query}: the first picture has the keypoints 0 to {len(pair.first.frames) - 1}")
    if method not in pair.descriptors:
        describer = open_describer(method)
        first, second = (describer.describe_frames(view.image, view.frames) for view in (pair.first, pair.second))
        pair.descriptors[method] = np.asarray(first), np.asarray(second)
    first, second = pair.descriptors[method]
    return rank_items(first[query], second, None if pair.correct is None else pair.correct[query])


def extent_of(method: str) -> float:
    """Return half the side of the patch that a method describes, in units of the frame's scale."""
    describer = open_describer(method)
    return describer.model.extent_for(DEFAULT_DETECTOR) if isinstance(describer, ModelDescriber) else WINDOW_SCALES / 2


def cut_patches(image: Grey, frames: Frames, method: str) -> NDArray[np.uint8]:
    """Cut frames at the extent that a method describes, in the resolution of the page: (N, 64, 64)."""
    return extract_patches(image, frames, PATCH_PIXELS, extent_of(method))
