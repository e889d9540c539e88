"""LIOP, the local intensity order pattern (Wang et al., ICCV 2011), computed by VLFeat's C library."""

import ctypes
import ctypes.util

import cv2
import numpy as np
import torch
from torch import Tensor

from doap.choices import DEFAULT_EXTENT
from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork

# Standard deviation of the blur in pixels. VLFeat does not smooth; without it the order is that of the noise.
SMOOTHING_SIGMA = 1.2


class Liop(PatchNetwork):
    """VLFeat's LIOP with its basic settings, which are the authors': 4 neighbours at 6 pixels, 6 intensity bins.

    It reads the disc inscribed in a patch of 41 pixels, the size used by the authors, and returns unit vectors.
    """

    def __init__(self) -> None:
        super().__init__(144, 41)
        self.library = _open_vlfeat()

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, 144) unit vectors of (N, 1, 41, 41) float patches, of any brightness and contrast."""
        self.check(patches)
        greys = patches[:, 0].detach().cpu().numpy().astype(np.float32)
        vectors = np.zeros((len(greys), self.dimensions), np.float32)
        state = self.library.vl_liopdesc_new_basic(self.input_size)
        try:
            for grey, vector in zip(greys, vectors, strict=True):
                smooth = cv2.GaussianBlur(grey, (0, 0), SMOOTHING_SIGMA, borderType=cv2.BORDER_REPLICATE)
                self.library.vl_liopdesc_process(state, vector.ctypes.data, smooth.ctypes.data)
        finally:
            self.library.vl_liopdesc_delete(state)
        return torch.from_numpy(vectors).to(patches.device)


def build_liop(name: str) -> Descriptor:
    """Build LIOP with the extent of our own models, so that both read the same region; VLFeat's detectors use 4."""
    return Descriptor(Liop(), "real", DEFAULT_EXTENT, name)


def _open_vlfeat() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(ctypes.util.find_library("vl") or "libvl.so.1")
        library.vl_liopdesc_new_basic.argtypes = [ctypes.c_ulonglong]
        library.vl_liopdesc_new_basic.restype = ctypes.c_void_p
        library.vl_liopdesc_process.argtypes = [ctypes.c_void_p] * 3
        library.vl_liopdesc_process.restype = None
        library.vl_liopdesc_delete.argtypes = [ctypes.c_void_p]
        library.vl_liopdesc_delete.restype = None
    except (OSError, AttributeError) as error:
        raise DoapError("liop needs VLFeat's C library; on Debian and Ubuntu: apt install libvlfeat1") from error
    return library
