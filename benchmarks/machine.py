"""What machine a benchmark ran on, and where its result is written."""

import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def device_name(device: str) -> str:
    """The processor, in words."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    file = Path("/proc/cpuinfo")
    model = re.findall(r"model name\s*:\s*(.+)", file.read_text() if file.exists() else "") or [platform.machine()]
    return f"{model[0]}, {torch.get_num_threads()} threads"


def file_name(benchmark: str, name: str, suffix: str) -> str:
    """The name of a file about a benchmark on a device."""
    return f"{benchmark}-{re.sub('[^a-z0-9]+', '-', name.lower().replace('(r)', '')).strip('-')}{suffix}"


def write_result(benchmark: str, device: str, result: Mapping[str, object]) -> None:
    """Write a result, with the device and versions, to benchmarks/results, and say where."""
    name = device_name(device)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / file_name(benchmark, name, ".json")
    target.write_text(json.dumps({"device": name, "torch": str(torch.__version__), **result}, indent=1) + "\n")
    print(f"written to {target}")
