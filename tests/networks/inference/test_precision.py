from pathlib import Path

import pytest
import torch

from doap.networks.inference import precision

ARM = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes {}cpuid asimdrdm lrcpc dcpop asimddp\n"


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "expected"),
    [
        ("aarch64", ARM.format("fphp asimdhp "), True),  # Neoverse N1
        ("aarch64", ARM.format(""), False),  # Cortex-A72
        ("x86_64", "flags\t: asimdhp\n", False),
        ("aarch64", None, False),
    ],
)
def test_float16_is_for_arm_cpus_that_multiply_it(
    machine: str, cpuinfo: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    monkeypatch.setattr(precision, "CPUINFO", path)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(precision, "has_fast_float16", lambda: True)
    precision.multiplies_float16.cache_clear()
    assert precision.multiplies_float16() is expected
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda _: False)
    assert precision.fastest_dtype(torch.device("cpu")) == (torch.float16 if expected else torch.float32)
    monkeypatch.setattr(precision, "has_fast_float16", lambda: False)  # torch has the reference kernel only
    precision.multiplies_float16.cache_clear()
    assert precision.multiplies_float16() is False
    precision.multiplies_float16.cache_clear()


def test_float16_must_be_faster_than_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, expected in ((0.5, True), (9.0, False)):
        times = {torch.float16: seconds, torch.float32: 1.0}
        monkeypatch.setattr(precision, "_time_convolution", times.__getitem__)
        assert precision.has_fast_float16() is expected


def test_bfloat16_is_for_cpus_with_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    for amx, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx)
        monkeypatch.setattr(precision, "multiplies_float16", lambda: False)
        assert precision.fastest_dtype(torch.device("cpu")) == expected


def test_gpus_without_tensor_cores_compute_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, expected in (((6, 1), torch.float32), ((7, 0), torch.float16), ((9, 0), torch.float16)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, value=capability: value)
        assert precision.fastest_dtype(torch.device("cuda")) == expected


def test_other_devices_compute_in_float32() -> None:
    assert precision.fastest_dtype(torch.device("mps")) == torch.float32
