"""Typed calls of torch modules whose types torch leaves open."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def call_with(network: nn.Module, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Call a network with some of its parameters replaced."""
    outputs = torch.func.functional_call(network, dict(parameters), inputs)
    assert isinstance(outputs, Tensor)
    return outputs


def convert_to_channels_last(network: nn.Module) -> None:
    """Convert the weights of a network to channels-last memory format, in place."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's type stubs
