"""MKD, the multiple-kernel descriptor (Mukundan et al., BMVC 2017, IJCV 2019), by kornia."""

from typing import Any

from torch import Tensor

from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork


class Mkd(PatchNetwork):
    """Polar and Cartesian kernels on the whole 32x32 patch, without whitening: 238 dimensions.

    The whitened forms, which are better, are learned, and kornia fetches them from the internet; this one needs
    nothing but kornia. It is of unit length by itself.
    """

    def __init__(self) -> None:
        try:
            from kornia.feature import MKDDescriptor
        except ImportError as error:
            raise DoapError("mkd needs kornia; install it with: pip install kornia") from error
        super().__init__(238, 32)
        no_whitening: Any = None  # allowed, though kornia's types do not say so
        self.kernels = MKDDescriptor(self.input_size, "concat", no_whitening)

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 32, 32) float, grey values in 0..255, to (N, 238)."""
        self.check(patches)
        values: Tensor = self.kernels(patches / 255)
        return values


def mkd(name: str) -> Descriptor:
    """MKD at our own models' extent: it was made for cut patches and says none."""
    return Descriptor(Mkd(), "real", 12.0, name)
