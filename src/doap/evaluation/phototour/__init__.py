"""Patch verification on UBC Phototour."""
