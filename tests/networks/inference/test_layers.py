from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from doap.networks.inference.layers import InferenceConv, InferenceLinear, cast
from doap.networks.inference.single_channel import BlockConv, ProductConv, inference_conv

CONVOLUTIONS = {
    "3x3": nn.Conv2d(4, 6, 3, padding=1),
    "stride 2": nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "one channel": nn.Conv2d(1, 6, 3, padding=1),
    "one channel, 7x7, stride 2": nn.Conv2d(1, 6, 7, stride=2, padding=3),
    "one channel, several outputs of a window": nn.Conv2d(1, 8, 7, stride=2, padding=3),
    "one channel, many outputs": nn.Conv2d(1, 40, (3, 5), padding=(1, 2)),
    "whole map": nn.Conv2d(4, 6, 12, bias=False),
    "no padding": nn.Conv2d(4, 6, 5),
}


@pytest.mark.parametrize("on_arm", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_those_of_torch(name: str, relu: bool, on_arm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.networks.inference.single_channel.is_arm", lambda: on_arm)
    convolution = deepcopy(CONVOLUTIONS[name]).double()
    layer = inference_conv(convolution, relu, torch.float64)
    assert isinstance(layer, ProductConv) == (on_arm and name.startswith("one channel"))
    for width in (12, 16, 17) if "whole" not in name else (12,):  # divisible by the outputs of a window, or not
        maps = torch.randn(5, convolution.in_channels, 12, width, dtype=torch.float64)
        expected = convolution(maps)
        expected = F.relu(expected) if relu else expected
        for layout in (torch.contiguous_format, torch.channels_last):
            torch.testing.assert_close(layer(maps.contiguous(memory_format=layout)), expected)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [((6, 4), (3, 2), (0, 1)), ((2, 8), (2, 2), (1, 0))])
@pytest.mark.parametrize("size", [(12, 16), (13, 15)])  # divisible by the stride, or not
def test_a_convolution_of_blocks_is_that_of_torch(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], size: tuple[int, int], relu: bool
) -> None:
    convolution = nn.Conv2d(1, 5, kernel, stride, padding)
    maps = torch.randn(7, 1, *size)
    expected = convolution(maps)
    actual = BlockConv(convolution, relu, torch.float32)(maps)  # two values of float32 are a word
    torch.testing.assert_close(actual, F.relu(expected) if relu else expected)


def test_in_bfloat16_the_first_layer_of_windows_reads_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.networks.inference.single_channel.is_arm", lambda: False)
    convolution = nn.Conv2d(1, 32, 8, stride=4, padding=2, bias=False)
    layer = inference_conv(convolution, True, torch.bfloat16)
    assert isinstance(layer, BlockConv)
    assert layer.block_weight.shape == (32, 16, 2, 2)
    maps = torch.randn(3, 1, 32, 32).bfloat16()
    expected = F.relu(F.conv2d(maps.float(), convolution.weight.bfloat16().float(), stride=4, padding=2))
    torch.testing.assert_close(layer(maps).float(), expected, rtol=0.02, atol=0.05)
    assert layer(maps[:0]).shape == (0, 32, 8, 8)
    layer.float()
    torch.testing.assert_close(layer(maps).float(), expected, rtol=1e-4, atol=1e-4)
    for other in (nn.Conv2d(1, 8, 7, stride=4), nn.Conv2d(1, 8, 4, stride=2), nn.Conv2d(2, 8, 8, stride=4)):
        assert type(inference_conv(other, True, torch.bfloat16)) is InferenceConv
    assert type(inference_conv(convolution, True, torch.float32)) is InferenceConv


@pytest.mark.parametrize("threads", [1, 64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_casts_are_those_of_torch(layout: torch.memory_format, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.networks.inference.layers.is_arm", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    random = torch.Generator().manual_seed(0)
    values = torch.exp2(torch.empty(6, 5, 32, 32).uniform_(-30, 20, generator=random))  # of 0 to infinity
    values *= torch.where(torch.rand(values.shape, generator=random) < 0.5, 1.0, -1.0)
    values[0, 0, 0, :4] = torch.tensor([0.0, -0.0, float("inf"), float("nan")])
    values = values.contiguous(memory_format=layout)
    actual, expected = cast(values, torch.float16), values.to(torch.float16)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert actual.isinf().sum() > 100
    assert actual.stride() == expected.stride()
    assert cast(values, torch.float32) is values


def test_maps_are_cast_to_the_dtype_of_the_weights() -> None:
    maps = torch.randn(2, 4, 12, 12)
    assert InferenceConv(CONVOLUTIONS["3x3"], True, torch.bfloat16)(maps).dtype == torch.bfloat16
    assert InferenceLinear(nn.Linear(12, 3), torch.bfloat16)(maps).dtype == torch.bfloat16


def test_linear_layers_are_those_of_torch() -> None:
    values = torch.randn(5, 12, dtype=torch.float64)
    for bias in (False, True):
        layer = nn.Linear(12, 3, bias=bias).double()
        torch.testing.assert_close(InferenceLinear(layer, torch.float64)(values), layer(values))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_cudnns_fused_kernel_is_torchs_convolution_and_relu(name: str) -> None:
    convolution = deepcopy(CONVOLUTIONS[name]).float().cuda()
    layer = InferenceConv(convolution, True, torch.float16)
    maps = torch.randn(5, convolution.in_channels, 12, 12, device="cuda")
    with torch.no_grad():
        torch.testing.assert_close(layer(maps).float(), F.relu(convolution(maps)), atol=2e-2, rtol=2e-2)
