"""Pyramids of many images in device memory."""

from doap.images.atlas.atlas import Atlas

__all__ = ["Atlas"]
