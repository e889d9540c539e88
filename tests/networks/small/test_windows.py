import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.descriptor import Descriptor
from doap.networks.inference import optimize_for_inference
from doap.networks.small.windows import Windows
from support.modules import call_with, convert_to_channels_last


@pytest.mark.parametrize(("dimensions", "parameters"), [(128, 158_720), (256, 157_696)])
def test_number_of_parameters(dimensions: int, parameters: int) -> None:
    assert sum(p.numel() for p in Windows(dimensions).parameters()) == parameters


def test_two_convolutions_and_a_head_normalised_with_dropout_before_it() -> None:
    layers = list(Windows(128, width=32, dropout=0.3).layers)
    convolutions = [m for m in layers if isinstance(m, nn.Conv2d)]
    shapes = [(m.out_channels, m.kernel_size, m.stride, m.padding) for m in convolutions]
    assert shapes == [(32, (8, 8), (4, 4), (2, 2)), (32, (3, 3), (1, 1), (0, 0))]
    assert [type(m) for m in layers[-3:]] == [nn.Dropout, nn.Linear, nn.BatchNorm1d]
    assert layers[-3].p == 0.3
    assert all(m.bias is None for m in layers if isinstance(m, nn.Conv2d | nn.Linear))


@pytest.mark.parametrize(("dimensions", "width"), [(128, 32), (256, 16), (7, 1), (1024, 8)])
def test_shape(dimensions: int, width: int) -> None:
    assert Windows(dimensions, width)(torch.rand(3, 1, 32, 32)).shape == (3, dimensions)


def test_activations_are_those_of_filters_on_windows() -> None:
    torch.manual_seed(0)
    network = Windows(5, width=3, dropout=0.0).double().eval()
    with torch.no_grad():
        for name, buffer in network.named_buffers():
            if name.endswith(("mean", "var")):
                buffer.uniform_(0.5, 2)
    patches = torch.rand(2, 1, 32, 32, dtype=torch.float64) * 255
    torch.testing.assert_close(network(patches), by_loops(network, patches))


def by_loops(network: Windows, patches: Tensor) -> Tensor:
    """Compute each value of each map by itself."""
    tensors = network.state_dict()
    mean, deviation = patches.mean((2, 3), keepdim=True), patches.var((2, 3), keepdim=True, correction=0).sqrt()
    padded = F.pad((patches - mean) / deviation, (2, 2, 2, 2))[:, 0]
    first = torch.empty(len(patches), 8, 8, 3, dtype=torch.float64)
    for row in range(8):
        for column in range(8):
            window = padded[:, 4 * row : 4 * row + 8, 4 * column : 4 * column + 8]
            first[:, row, column] = torch.einsum("nij,kij->nk", window, tensors["layers.0.weight"][:, 0])
    first = normalise_and_clip(first, tensors, 1)
    second = torch.empty(len(patches), 6, 6, 3, dtype=torch.float64)
    for row in range(6):
        for column in range(6):
            window = first[:, row : row + 3, column : column + 3]
            second[:, row, column] = torch.einsum("nijc,kcij->nk", window, tensors["layers.3.weight"])
    second = normalise_and_clip(second, tensors, 4)
    return normalise(second.reshape(len(patches), -1) @ tensors["layers.8.weight"].T, tensors, 9)


def normalise_and_clip(values: Tensor, tensors: dict[str, Tensor], layer: int) -> Tensor:
    return normalise(values, tensors, layer).clamp(min=0)


def normalise(values: Tensor, tensors: dict[str, Tensor], layer: int) -> Tensor:
    mean, variance = tensors[f"layers.{layer}.running_mean"], tensors[f"layers.{layer}.running_var"]
    return (values - mean) / (variance + 1e-5).sqrt()


def test_he_initialisation() -> None:
    torch.manual_seed(0)
    for module in Windows(128).modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            assert module.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.15)


@pytest.mark.parametrize("shape", [(3, 1, 31, 32), (3, 3, 32, 32), (3, 32, 32)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Windows takes"):
        Windows()(torch.zeros(shape))


def test_brightness_and_contrast_change_nothing() -> None:
    network = Windows(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 100 + 50
    torch.testing.assert_close(network(patches * 1.7 - 30), network(patches), rtol=1e-3, atol=1e-3)


def test_a_constant_patch_is_finite_with_a_finite_gradient() -> None:
    patches = torch.full((4, 1, 32, 32), 200.0, requires_grad=True)
    outputs = Windows(width=4).eval()(patches)
    outputs.sum().backward()
    assert torch.isfinite(outputs).all()
    assert patches.grad is not None
    assert torch.isfinite(patches.grad).all()


def test_the_order_of_maps_in_memory_changes_nothing() -> None:
    network = Windows(16, width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    expected = network(patches)
    convert_to_channels_last(network)
    torch.testing.assert_close(network(patches.contiguous(memory_format=torch.channels_last)), expected)


def test_gradient_in_float64() -> None:
    torch.manual_seed(1)
    network = Windows(3, width=2, dropout=0.0).double()
    patches = torch.rand(3, 1, 32, 32, dtype=torch.float64)
    weight = network.get_parameter("layers.0.weight")

    def first_layer(values: Tensor) -> Tensor:
        return call_with(network, {"layers.0.weight": values}, patches)

    assert torch.autograd.gradcheck(first_layer, weight.detach().clone().requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_only_the_first_layer_and_the_head_are_matrix_products_in_the_fast_form(dtype: torch.dtype) -> None:
    model = Descriptor(Windows(16, width=8).eval(), "real", 12.0, "windows")
    weights = dict(optimize_for_inference(model, dtype).network.named_parameters())
    assert weights["network.layers.3.weight"].dtype == dtype
