import pytest
import torch
import torch.nn.functional as F

from doap.networks.layers.convolutions import PIXELS_PER_SUM, PatchConvolution, WholeMapConvolution, convolve_patches


@pytest.mark.parametrize(("count", "side"), [(16, 32), (3, 7)])  # several sums, and one
def test_products_of_neighbourhoods_are_the_convolution(count: int, side: int) -> None:
    assert (count * side * side % PIXELS_PER_SUM == 0) == (count == 16)
    random = torch.Generator().manual_seed(0)
    patches = torch.randn(count, 1, side, side, generator=random, dtype=torch.float64)
    weight = torch.randn(24, 1, 3, 3, generator=random, dtype=torch.float64, requires_grad=True)
    ours, expected = convolve_patches(patches, weight), F.conv2d(patches, weight, padding=1)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(ours, expected)
    upstream = torch.randn(expected.shape, generator=random, dtype=torch.float64)
    gradients = [torch.autograd.grad(values, weight, upstream)[0] for values in (ours, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.gpu
@pytest.mark.parametrize("is_bfloat16", [False, True])
def test_layers_on_a_gpu_are_those_of_torch(is_bfloat16: bool) -> None:
    random = torch.Generator().manual_seed(0)
    layers = [
        (PatchConvolution(1, 24, 3, padding=1, bias=False), torch.randn(512, 1, 32, 32, generator=random)),
        (WholeMapConvolution(32, 64, (16, 8), bias=False), torch.randn(512, 32, 16, 8, generator=random)),
    ]
    for layer, values in layers:
        layer.to("cuda", memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs
        values = values.to("cuda").contiguous(memory_format=torch.channels_last)
        results = []
        for is_training in (True, False):
            layer.train(is_training).zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=is_bfloat16):
                outputs = layer(values)
            (outputs.float() ** 2).mean().backward()
            assert layer.weight.grad is not None
            results.append((outputs.float(), layer.weight.grad.clone()))
        tolerance = 2e-2 if is_bfloat16 else 2e-3  # of the largest value; torch multiplies float32 in TF32
        for ours, expected in zip(*results, strict=True):
            assert (ours - expected).abs().max() <= tolerance * expected.abs().max()
