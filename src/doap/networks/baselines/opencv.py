"""Handcrafted and boosted descriptors computed by OpenCV, as networks without parameters.

An upright keypoint is placed at the centre of the patch, with the size at which the sampling window of the descriptor
is the patch; the docstrings derive it. The border of the patch is repeated, so that OpenCV drops no keypoint.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.choices import DEFAULT_EXTENT
from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork

# Patches per call of OpenCV: few calls, and bounded memory for the pyramids.
CHUNK_SIZE = 64

# OpenCV documents a window of 6.75 keypoint sizes for difference-of-Gaussian keypoints; the scale of a frame is half a
# keypoint size.
BOOSTED_EXTENT = 6.75


class OpenCv(PatchNetwork):
    """An OpenCV extractor applied to patches.

    Args:
        create: Function that creates an OpenCV extractor, which `pickle` takes, such as a partial `create_extractor`.
        dimensions: Dimensions of the descriptor, or its bits.
        input_size: S, side of the patch in pixels; the keypoint is at S // 2, the centre of an odd patch, and the
            centre of an even patch as OpenCV's samplers define it.
        keypoint_size: Size of the OpenCV keypoint.
        margin: Pixels by which the border is repeated, for OpenCV's border rules and for filters that read outside.
        octave: OpenCV's packed pyramid level, used by SIFT; the other extractors read the patch itself.
        postprocess: Applied to the (N, …) output of OpenCV.
    """

    def __init__(
        self,
        create: Callable[[], cv2.Feature2D],
        dimensions: int,
        input_size: int,
        keypoint_size: float,
        margin: int,
        octave: int = 0,
        postprocess: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> None:
        super().__init__(dimensions, input_size)
        # Extractors hold state and cannot be pickled: each call creates its own, so that threads can share a model.
        self.create = create
        create()  # an OpenCV without it is an error here
        self.keypoint_size = keypoint_size
        self.margin = margin
        self.octave = octave
        self.postprocess = postprocess

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, dimensions) float32 of (N, 1, S, S) float patches, grey values in 0..255, rounded to uint8."""
        self.check(patches)
        greys = patches[:, 0].detach().round().clamp(0, 255).to(torch.uint8).cpu().numpy()
        extractor = self.create()
        starts = range(0, len(greys), CHUNK_SIZE)
        chunks = [self._describe(greys[start : start + CHUNK_SIZE], extractor) for start in starts]
        values = np.concatenate(chunks) if chunks else np.zeros((0, self.dimensions), np.float32)
        return torch.from_numpy(values).to(patches.device)

    def _describe(self, greys: NDArray[np.uint8], extractor: cv2.Feature2D) -> NDArray[np.float32]:
        """Compute (N, dimensions) of (N, S, S) patches, stacked vertically in one image."""
        after = self.margin - self.input_size % 2  # even pitch: SIFT's halved images sample all patches alike
        padded = np.pad(greys, ((0, 0), (self.margin, after), (self.margin, after)), "edge")
        pitch = padded.shape[1]
        centre = float(self.margin + self.input_size // 2)
        keypoints = [
            cv2.KeyPoint(centre, centre + pitch * index, self.keypoint_size, 0.0, 0.0, self.octave, index)
            for index in range(len(greys))
        ]
        described, values = extractor.compute(padded.reshape(-1, pitch), keypoints)
        if [keypoint.class_id for keypoint in described] != list(range(len(greys))):
            raise RuntimeError("OpenCV did not describe every patch in order")
        return np.asarray(self.postprocess(values) if self.postprocess else values, np.float32)


def build_binboost(name: str, bits: int) -> Descriptor:
    """Build BinBoost (Trzcinski et al., PAMI 2015).

    It was learned on 32x32 patches, to which OpenCV resizes the window of the keypoint, so the input is 32x32.
    """
    variants = {64: 300, 128: 301, 256: 302}  # OpenCV's BINBOOST_64, _128, _256, which have no names in Python
    extractor = partial(create_extractor, "BoostDesc", name, variants[bits], True, 1.0)
    return Descriptor(OpenCv(extractor, bits, 32, 32.0, 4, postprocess=_signs), "binary", BOOSTED_EXTENT, name)


def build_box_differences(name: str, family: str, bits: int) -> Descriptor:
    """Build BEBLID (Suárez et al., 2020) or TEBLID (Suárez et al., 2021), differences of boxes.

    They were learned on 32x32 patches: at this size the boxes fall on whole pixels, as in training.
    """
    sizes = {"BEBLID": {256: 101, 512: 100}, "TEBLID": {256: 102, 512: 103}}  # OpenCV's BEBLID_SIZE_256_BITS …
    extractor = partial(create_extractor, family, name, 1.0, sizes[family][bits])
    return Descriptor(OpenCv(extractor, bits, 32, 32.0, 4, postprocess=_signs), "binary", BOOSTED_EXTENT, name)


def build_latch(name: str) -> Descriptor:
    """Build LATCH (Levi and Hassner, WACV 2016).

    Its window does not depend on the keypoint size: points up to 24 pixels from the centre, each with a 7x7 patch
    around it, span 55 pixels. It defines no extent.
    """
    network = OpenCv(partial(create_extractor, "LATCH", name), 256, 55, 55.0, 8, postprocess=_signs)
    return Descriptor(network, "binary", DEFAULT_EXTENT, name)


def build_orb(name: str) -> Descriptor:
    """Build ORB (Rublee et al., ICCV 2011).

    Its patch is 31 pixels wide on the pyramid level of the keypoint, here always the lowest. OpenCV drops keypoints
    closer than 31 pixels to the border, hence the margin. It defines no extent for these frames.
    """
    network = OpenCv(partial(create_extractor, "ORB", name), 256, 31, 31.0, 32, postprocess=_signs)
    return Descriptor(network, "binary", DEFAULT_EXTENT, name)


def build_daisy(name: str) -> Descriptor:
    """Build DAISY (Tola et al., PAMI 2010), 200 dimensions.

    Its window does not depend on the keypoint size: the outer ring of cells is 15 pixels from the centre, each cell a
    Gaussian of standard deviation 7.5, and the patch, 45 pixels wide, ends one deviation outside. OpenCV does not
    normalise the vector by default; the unit length of `Descriptor` is OpenCV's NRM_FULL. It defines no extent.
    """
    network = OpenCv(partial(create_extractor, "DAISY", name), 200, 45, 45.0, 32)
    return Descriptor(network, "real", DEFAULT_EXTENT, name)


def build_vgg(name: str) -> Descriptor:
    """Build VGG (Simonyan et al., PAMI 2014), 120 dimensions.

    It was learned on 64x64 patches, to which OpenCV resizes the window of the keypoint, so the input is 64x64. It was
    trained for plain L2 distances; with the unit vectors of `Descriptor` it ranks by angle.
    """
    vgg_120 = 100  # OpenCV's VGG_120, which has no name in Python
    extractor = partial(create_extractor, "VGG", name, vgg_120, 1.4, True, True, 1.0, False)
    return Descriptor(OpenCv(extractor, 120, 64, 64.0, 16), "real", BOOSTED_EXTENT, name)


OPENCV_DESCRIPTORS: dict[str, Callable[[str], Descriptor]] = {
    "binboost-64": partial(build_binboost, bits=64),
    "binboost-128": partial(build_binboost, bits=128),
    "binboost-256": partial(build_binboost, bits=256),
    "teblid-256": partial(build_box_differences, family="TEBLID", bits=256),
    "teblid-512": partial(build_box_differences, family="TEBLID", bits=512),
    "beblid-256": partial(build_box_differences, family="BEBLID", bits=256),
    "beblid-512": partial(build_box_differences, family="BEBLID", bits=512),
    "latch": build_latch,
    "orb": build_orb,
    "daisy": build_daisy,
    "vgg-120": build_vgg,
}


def create_extractor(family: str, name: str, *arguments: object) -> cv2.Feature2D:
    """Create an extractor of a class of OpenCV or its contrib modules; `name` is the descriptor in messages."""
    extractor_class: Any = getattr(cv2, family, None) or getattr(getattr(cv2, "xfeatures2d", None), family, None)
    if extractor_class is None:
        raise DoapError(f"{name} needs OpenCV's contrib modules; install opencv-contrib-python-headless 4.8 or newer")
    try:
        extractor: cv2.Feature2D = extractor_class.create(*arguments)
    except cv2.error as error:  # learned weights are downloaded when OpenCV is built; not every build has them
        raise DoapError(
            f"{name}: this build of OpenCV lacks its weights, as the ARM wheels do; install another build"
        ) from error
    return extractor


def _signs(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Unpack (N, bits / 8) uint8 to (N, bits) of -1 and 1, which `Descriptor` packs again unchanged."""
    return np.unpackbits(packed, axis=1).astype(np.float32) * 2 - 1
