"""What the device of a tensor offers."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = torch.version.hip is None and find_spec("triton") is not None


def uses_triton(values: Tensor) -> bool:
    """Return whether Triton kernels run where these values are: on NVIDIA GPUs."""
    return HAS_TRITON and values.is_cuda
