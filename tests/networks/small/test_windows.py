import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.descriptor import Descriptor
from doap.networks.inference import optimize_for_inference
from doap.networks.small.windows import Windows


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_only_the_first_layer_and_the_head_are_matrix_products_in_the_fast_form(dtype: torch.dtype) -> None:
    model = Descriptor(Windows(16, width=8).eval(), "real", 12.0, "windows")
    weights = dict(optimize_for_inference(model, dtype).network.named_parameters())
    assert weights["network.layers.3.weight"].dtype == dtype
