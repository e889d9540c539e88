"""MKD, the multiple-kernel descriptor (Mukundan et al., BMVC 2017, IJCV 2019), computed by kornia."""

from typing import Any

from torch import Tensor

from doap.choices import DEFAULT_EXTENT
from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork


class Mkd(PatchNetwork):
    """Polar and Cartesian kernels on the whole 32x32 patch, without whitening: 238 dimensions.

    The whitened variants perform better, but kornia downloads their learned parameters. This one needs no download.
    It returns unit vectors.
    """

    def __init__(self) -> None:
        try:
            from kornia.feature import MKDDescriptor
        except ModuleNotFoundError as error:
            raise DoapError("kornia is not installed; run: pip install 'doap[baselines]'") from error
        super().__init__(238, 32)
        no_whitening: Any = None  # accepted, but missing in kornia's type annotations
        self.kernels = MKDDescriptor(self.input_size, "concat", no_whitening)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, 238) unit vectors of (N, 1, 32, 32) float patches, grey values in 0..255."""
        self.check(patches)
        values: Tensor = self.kernels(patches / 255)
        return values


def build_mkd(name: str) -> Descriptor:
    """Build MKD with the extent of our own models; it is defined for extracted patches and defines no extent."""
    return Descriptor(Mkd(), "real", DEFAULT_EXTENT, name)
