"""Name of the machine of a benchmark, and writing of its results."""

import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def device_name(device: str) -> str:
    """Return the name of the GPU, or of the CPU with its number of threads."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*:\s*(.+)", cpuinfo.read_text() if cpuinfo.exists() else "")
    return f"{models[0] if models else platform.machine()}, {torch.get_num_threads()} threads"


def file_name(benchmark: str, name: str, suffix: str) -> str:
    """Return the file name of a benchmark's output for a device of this name."""
    return f"{benchmark}-{re.sub('[^a-z0-9]+', '-', name.lower().replace('(r)', '')).strip('-')}{suffix}"


def write_result(benchmark: str, device: str, result: Mapping[str, object]) -> Path:
    """Write a result with the name of the device and torch's version to benchmarks/results, and return the path."""
    name = device_name(device)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / file_name(benchmark, name, ".json")
    target.write_text(json.dumps({"device": name, "torch": str(torch.__version__), **result}, indent=1) + "\n")
    print(f"written to {target}")
    return target
