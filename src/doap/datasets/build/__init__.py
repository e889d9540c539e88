"""Builds from own photos: sets, splits, folders in the format of HPatches, image pairs."""
