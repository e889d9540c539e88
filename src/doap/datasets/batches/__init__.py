"""Samplers, augmentation, and sets resident on a device."""
