from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from doap import onednn
from doap.networks.inference.convolving import are_bounded, convolve
from doap.networks.inference.precision import fastest_dtype, multiplies_bfloat16

NEEDS_FUSED = pytest.mark.skipif(
    not multiplies_bfloat16("cpu") or not onednn.is_enabled(), reason="needs oneDNN on a CPU with AMX"
)


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return maps, weights and a bias."""
    return torch.randn(3, 4, 9, 11).to(dtype), torch.randn(6, 4, 3, 3).to(dtype), torch.randn(6).to(dtype)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("stride", [(1, 1), (2, 1)])
@pytest.mark.parametrize("dtype", sorted({torch.float64, torch.float32, fastest_dtype(torch.device("cpu"))}, key=str))
def test_a_fused_kernel_is_torchs_convolution_and_relu(dtype: torch.dtype, stride: tuple[int, int], relu: bool) -> None:
    maps, weight, bias = inputs(dtype)
    expected = F.conv2d(maps, weight, bias, stride, (1, 0))
    actual = convolve(maps, weight, bias, stride, (1, 0), relu, is_bounded=True)
    torch.testing.assert_close(actual, F.relu(expected) if relu else expected)


@NEEDS_FUSED
def test_relu_is_part_of_the_kernel_unless_gradients_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, weight, bias = inputs(torch.bfloat16)
    kernel = Mock(wraps=torch.ops.mkldnn._convolution_pointwise)
    monkeypatch.setattr(torch.ops.mkldnn, "_convolution_pointwise", kernel)
    fused = convolve(maps, weight, bias, (1, 1), (1, 1), relu=True, is_bounded=True)
    assert kernel.call_count == 1
    maps.requires_grad_()
    recorded = convolve(maps, weight, bias, (1, 1), (1, 1), relu=True, is_bounded=True)
    assert kernel.call_count == 1
    torch.testing.assert_close(recorded, fused)
    with torch.no_grad():
        torch.testing.assert_close(convolve(maps, weight, bias, (1, 1), (1, 1), relu=True, is_bounded=False), fused)
    assert kernel.call_count == 1
    (gradient,) = torch.autograd.grad(recorded.sum(), maps)
    expected = F.conv_transpose2d((fused > 0).to(weight.dtype), weight, padding=1)  # of the outputs above 0
    torch.testing.assert_close(gradient, expected)


@NEEDS_FUSED
def test_without_onednn_torch_convolves(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Mock()
    monkeypatch.setattr(torch.ops.mkldnn, "_convolution_pointwise", kernel)
    monkeypatch.setattr("doap.onednn.is_enabled", lambda: False)
    maps, weight, bias = inputs(torch.bfloat16)
    actual = convolve(maps, weight, bias, (1, 1), (1, 1), relu=True, is_bounded=True)
    torch.testing.assert_close(actual, F.relu(F.conv2d(maps, weight, bias, padding=1)))
    kernel.assert_not_called()


def test_weights_are_bounded_if_the_largest_sum_is() -> None:
    weight, bias = torch.ones(2, 4, 3, 3), torch.tensor([0.0, -5.0])
    assert are_bounded(weight, bias)
    assert are_bounded(weight * 990 / 36, bias)  # 990 and 995
    assert not are_bounded(-weight * 996 / 36, bias)
    assert not are_bounded(weight, bias * torch.inf)
