"""The dtype in which a device multiplies fastest.

The choice depends on the hardware and on the kernels of the installed torch, so that an installation always gives the
same descriptors.
"""

import platform
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F

CPUINFO = Path("/proc/cpuinfo")
REFERENCE_SLOWDOWN = 3  # the reference kernel is slower by more, whatever else runs on the machine
VOLTA = (7, 0)  # first CUDA capability with tensor cores, which multiply float16


def fastest_dtype(device: torch.device) -> torch.dtype:
    """Return the floating-point type of the fastest convolutions on a device.

    It is float16 on NVIDIA GPUs with tensor cores and on ARM CPUs with half-precision arithmetic, bfloat16 on CPUs with
    AMX, and float32 elsewhere.
    """
    if device.type == "cuda":
        return torch.float16 if torch.cuda.get_device_capability(device) >= VOLTA else torch.float32
    if device.type == "cpu" and multiplies_bfloat16("cpu"):
        return torch.bfloat16
    return torch.float16 if device.type == "cpu" and multiplies_float16() else torch.float32


def multiplies_bfloat16(device_type: str) -> bool:
    """Return whether a device type ("cpu", "cuda" …) multiplies bfloat16 in hardware."""
    if device_type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    amx: Callable[[], bool] = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return device_type == "cpu" and amx()  # CPUs without AMX emulate bfloat16 slowly


@cache
def multiplies_float16() -> bool:
    """Return whether this CPU is an ARM with arithmetic on vectors of float16, and torch's convolutions use it."""
    if not is_arm() or not CPUINFO.exists() or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    has_vectors = re.search(r"^Features\s*:.*\basimdhp\b", CPUINFO.read_text(), re.MULTILINE)
    return has_vectors is not None and has_fast_float16()


def has_fast_float16() -> bool:
    """Return whether torch convolves float16 by a fast kernel on this CPU.

    Torch does not tell which kernel it uses. The reference kernel, which some builds use for float16, is many times
    slower than float32, the others are faster: a timing of a few milliseconds tells them apart. The limit is between,
    not at 1, so that the choice does not depend on the load.
    """
    return _time_convolution(torch.float16) < REFERENCE_SLOWDOWN * _time_convolution(torch.float32)


@torch.no_grad()
def _time_convolution(dtype: torch.dtype) -> float:
    """Return the shortest of several times of a convolution, in seconds."""
    maps = torch.ones(8, 64, 16, 16).to(dtype, memory_format=torch.channels_last)
    weight = torch.ones(64, 64, 3, 3).to(dtype, memory_format=torch.channels_last)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        F.conv2d(maps, weight, padding=1)
        times.append(time.perf_counter() - start)
    return min(times)


def is_arm() -> bool:
    """Return whether this CPU is a 64-bit ARM."""
    return platform.machine().lower() in ("aarch64", "arm64")
