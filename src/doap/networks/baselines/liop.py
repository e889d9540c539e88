"""LIOP, the local intensity order pattern (Wang et al., ICCV 2011), by VLFeat's C library."""

import ctypes
import ctypes.util

import cv2
import numpy as np
import torch
from torch import Tensor

from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork

# In pixels of the patch. VLFeat leaves it to the caller, and without it the orders are those of the noise.
SMOOTHING = 1.2


class Liop(PatchNetwork):
    """VLFeat's LIOP with its basic settings, which are the authors': 4 neighbours at 6 pixels, 6 bins of intensity.

    It reads the disc inscribed in the patch, of 41 pixels as its authors have it, and is of unit length by itself.
    """

    def __init__(self) -> None:
        super().__init__(144, 41)
        self.library = _open()

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 41, 41) float, of any brightness and contrast, to (N, 144)."""
        self.check(patches)
        greys = patches[:, 0].detach().cpu().numpy().astype(np.float32)
        described = np.zeros((len(greys), self.dimensions), np.float32)
        state = self.library.vl_liopdesc_new_basic(self.input_size)
        try:
            for grey, vector in zip(greys, described, strict=True):
                smooth = cv2.GaussianBlur(grey, (0, 0), SMOOTHING, borderType=cv2.BORDER_REPLICATE)
                self.library.vl_liopdesc_process(state, vector.ctypes.data, smooth.ctypes.data)
        finally:
            self.library.vl_liopdesc_delete(state)
        return torch.from_numpy(described).to(patches.device)


def liop(name: str) -> Descriptor:
    """LIOP at our own models' extent, so that it sees as much as they do; VLFeat's detectors would give it 4."""
    return Descriptor(Liop(), "real", 12.0, name)


def _open() -> ctypes.CDLL:
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
