"""Models for `torch.hub.load`; see docs/bridges/hubs.md."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doap.networks.descriptor import Descriptor

dependencies = ["torch", "numpy", "cv2", "PIL", "safetensors", "pydantic"]

# The package of this checkout, installed or not. It stays on the path: doap imports its modules on first use.
_SOURCE = str(Path(__file__).resolve().parent / "src")
if _SOURCE not in sys.path:
    sys.path.insert(0, _SOURCE)


def doap_128(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """L2Net, 128 dimensions: (N, 1, S, S) grey patches in 0..255 to (N, 128) unit vectors.

    Args:
        pretrained: Whether to load the trained weights; False returns an untrained float32 network in training mode.
        device: Device of the model.
        fast: Whether to return the fastest form for inference; False returns a trainable float32 network.
    """
    return _load("doap-128", pretrained, device, fast)


def doap_256b(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """L2Net, 256 bits: (N, 1, S, S) grey patches in 0..255 to (N, 32) bytes; arguments as of `doap_128`."""
    return _load("doap-256b", pretrained, device, fast)


def doap_128_open(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """`doap_128` trained only on photos whose sources state a licence."""
    return _load("doap-128-open", pretrained, device, fast)


def doap_large_128(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """Large network of residual blocks, 128 dimensions; see `doap_128`."""
    return _load("doap-large-128", pretrained, device, fast)


def doap_st_128(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """`doap_128` with a Spatial Transformer that aligns patches first."""
    return _load("doap-st-128", pretrained, device, fast)


def doap_st_256b(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """`doap_256b` with a Spatial Transformer that aligns patches first."""
    return _load("doap-st-256b", pretrained, device, fast)


def doap_tiny_128(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """Small network for phones and CPUs, 128 dimensions; see `doap_128`."""
    return _load("doap-tiny-128", pretrained, device, fast)


def doap_tiny_256b(pretrained: bool = True, device: str = "cpu", fast: bool = True) -> "Descriptor":
    """Small network for phones and CPUs, 256 bits; see `doap_256b`."""
    return _load("doap-tiny-256b", pretrained, device, fast)


def _load(name: str, pretrained: bool, device: str, fast: bool) -> "Descriptor":
    from doap.networks.architecture import build_network
    from doap.networks.card import read_card
    from doap.networks.descriptor import Descriptor, check_device
    from doap.networks.registry import find_weights, load

    if pretrained:
        return load(name, device, fast)
    check_device(device)
    card = read_card(find_weights(name))
    network = build_network(card.architecture)
    return Descriptor(network, card.kind, card.extent, card.name, card.extents, card.prefixes).to(device)
