"""Networks that correct frames: patches in, 2x2 corrections out."""

from doap.networks.frames.frame_network import FrameNetwork, FrameSettings

__all__ = ["FrameNetwork", "FrameSettings"]
