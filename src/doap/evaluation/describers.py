"""One door to everything that can be compared: learned models and handcrafted peers."""

from doap.evaluation.baselines.sift import Sift
from doap.features import FrameDescriber, PatchDescriber
from doap.networks.registry import load

HANDCRAFTED: dict[str, FrameDescriber] = {"sift": Sift(), "rootsift": Sift(root=True)}


def describer(name: str, device: str = "cpu") -> FrameDescriber:
    """Whatever `doap.load` loads, on patches cut at its extent; but "sift" and "rootsift" read the image itself."""
    return HANDCRAFTED.get(name) or PatchDescriber(load(name, device))
