"""Handcrafted and boosted descriptors by OpenCV, as networks without parameters.

Each puts a keypoint in the middle of the patch, upright, of the size at which the descriptor's own sampling window
is the patch; the docstrings say why. Around the patch its edge is repeated, so that no border rule drops it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork

# One call of OpenCV describes a strip of so many patches: few calls, and bounded memory for the pyramids.
STRIP = 64

# What OpenCV's documentation gives for difference-of-Gaussian keypoints: window = 6.75 keypoint sizes, and our
# frames' scale is half of a keypoint's size.
BOOSTED_EXTENT = 6.75


class OpenCv(PatchNetwork):
    """Hands patches to an OpenCV extractor.

    Args:
        extractor: what describes.
        dimensions: of the descriptor, or its bits.
        input_size: S, the side of the patch in pixels; the keypoint stands at S // 2, the middle of an odd patch,
            and of an even one where OpenCV's samplers have it.
        keypoint_size: OpenCV's.
        margin: pixels by which the patch's edge is repeated, for border rules and for filters that reach outside.
        octave: OpenCV's packed level of SIFT's pyramid; the others read the patch as it is.
        finish: what is done to the (N, …) values of OpenCV.
    """

    def __init__(
        self,
        extractor: cv2.Feature2D,
        dimensions: int,
        input_size: int,
        keypoint_size: float,
        margin: int,
        octave: int = 0,
        finish: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> None:
        super().__init__(dimensions, input_size)
        self.extractor = extractor
        self.keypoint_size = keypoint_size
        self.margin = margin
        self.octave = octave
        self.finish = finish

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, S, S) float, grey values in 0..255, rounded to bytes, to (N, dimensions) float32."""
        self.check(patches)
        greys = patches[:, 0].detach().round().clamp(0, 255).to(torch.uint8).cpu().numpy()
        strips = [self._describe(greys[start : start + STRIP]) for start in range(0, len(greys), STRIP)]
        values = np.concatenate(strips) if strips else np.zeros((0, self.dimensions), np.float32)
        return torch.from_numpy(values).to(patches.device)

    def _describe(self, greys: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(N, S, S) patches, one below the other in one image, to (N, dimensions)."""
        after = self.margin - self.input_size % 2  # an even pitch: SIFT's halved images sample all patches alike
        padded = np.pad(greys, ((0, 0), (self.margin, after), (self.margin, after)), "edge")
        pitch = padded.shape[1]
        centre = float(self.margin + self.input_size // 2)
        wanted = [
            cv2.KeyPoint(centre, centre + pitch * number, self.keypoint_size, 0.0, 0.0, self.octave, number)
            for number in range(len(greys))
        ]
        described, values = self.extractor.compute(padded.reshape(-1, pitch), wanted)
        if [keypoint.class_id for keypoint in described] != list(range(len(greys))):
            raise RuntimeError("OpenCV did not describe every patch in order")
        return np.asarray(self.finish(values) if self.finish else values, np.float32)


def binboost(name: str, bits: int) -> Descriptor:
    """BinBoost (Trzcinski et al., PAMI 2015).

    Learned on patches of 32x32, which the keypoint's window becomes, so the patch is given as just these.
    """
    kinds = {64: 300, 128: 301, 256: 302}  # OpenCV's BINBOOST_64, _128, _256, without names in Python
    extractor = _learned("BoostDesc", name, kinds[bits], True, 1.0)
    return Descriptor(OpenCv(extractor, bits, 32, 32.0, 4, finish=_signs), "binary", BOOSTED_EXTENT, name)


def boxes(name: str, family: str, bits: int) -> Descriptor:
    """BEBLID (Suárez et al., 2020) or TEBLID (Suárez et al., 2021): differences of boxes.

    Learned on patches of 32x32: at this size the boxes fall on whole pixels, as in training.
    """
    chosen = _contrib(family, name)
    size = {256: f"{family}_SIZE_256_BITS", 512: f"{family}_SIZE_512_BITS"}[bits]
    extractor = chosen.create(1.0, getattr(cv2.xfeatures2d, size))
    return Descriptor(OpenCv(extractor, bits, 32, 32.0, 4, finish=_signs), "binary", BOOSTED_EXTENT, name)


def latch(name: str) -> Descriptor:
    """LATCH (Levi and Hassner, WACV 2016).

    Its window does not follow the keypoint's size: points up to 24 pixels from the middle, each with a small patch
    of 7x7 around it, so 55 pixels. It has no extent of its own.
    """
    network = OpenCv(_contrib("LATCH", name).create(), 256, 55, 55.0, 8, finish=_signs)
    return Descriptor(network, "binary", 12.0, name)


def orb(name: str) -> Descriptor:
    """ORB (Rublee et al., ICCV 2011).

    Its patch is 31 pixels on the keypoint's level of the pyramid, here always the lowest. OpenCV drops keypoints
    less than 31 pixels from the border, so the margin is that wide. It has no extent for these frames.
    """
    return Descriptor(OpenCv(cv2.ORB.create(), 256, 31, 31.0, 32, finish=_signs), "binary", 12.0, name)


def daisy(name: str) -> Descriptor:
    """DAISY (Tola et al., PAMI 2010): 200 dimensions.

    Its window does not follow the keypoint's size: the outer ring of cells lies 15 pixels from the middle, each a
    Gaussian of deviation 7.5, and the patch ends one deviation outside, at 45 pixels. OpenCV leaves the vector
    unnormalised by default; `Descriptor`'s unit length is OpenCV's NRM_FULL. It has no extent of its own.
    """
    return Descriptor(OpenCv(_contrib("DAISY", name).create(), 200, 45, 45.0, 32), "real", 12.0, name)


def vgg(name: str) -> Descriptor:
    """VGG (Simonyan et al., PAMI 2014), 120 dimensions.

    Learned on patches of 64x64, which the keypoint's window becomes, so the patch is given as just these. Trained
    for plain L2 distances; `Descriptor`'s unit length makes them angles.
    """
    full = 100  # OpenCV's VGG_120, without a name in Python
    extractor = _learned("VGG", name, full, 1.4, True, True, 1.0, False)
    return Descriptor(OpenCv(extractor, 120, 64, 64.0, 16), "real", BOOSTED_EXTENT, name)


DESCRIPTORS: dict[str, Callable[[str], Descriptor]] = {
    "binboost-64": partial(binboost, bits=64),
    "binboost-128": partial(binboost, bits=128),
    "binboost-256": partial(binboost, bits=256),
    "teblid-256": partial(boxes, family="TEBLID", bits=256),
    "teblid-512": partial(boxes, family="TEBLID", bits=512),
    "beblid-256": partial(boxes, family="BEBLID", bits=256),
    "beblid-512": partial(boxes, family="BEBLID", bits=512),
    "latch": latch,
    "orb": orb,
    "daisy": daisy,
    "vgg-120": vgg,
}


def _contrib(family: str, name: str) -> Any:
    found = getattr(getattr(cv2, "xfeatures2d", None), family, None)
    if found is None:
        raise DoapError(f"{name} needs OpenCV's contrib modules; install opencv-contrib-python-headless 4.8 or newer")
    return found


def _learned(family: str, name: str, *arguments: object) -> cv2.Feature2D:
    """An extractor whose weights are downloaded when OpenCV is built, which not every build has done."""
    try:
        extractor: cv2.Feature2D = _contrib(family, name).create(*arguments)
    except cv2.error as error:
        raise DoapError(
            f"{name}: this build of OpenCV is without its weights, as the wheels for ARM are; take another build"
        ) from error
    return extractor


def _signs(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(N, bits / 8) bytes to (N, bits) of -1 and 1, which `Descriptor` packs as they were."""
    return np.unpackbits(packed, axis=1).astype(np.float32) * 2 - 1
