"""Builds from the user's photos: sets, splits, folders in the format of HPatches, image pairs."""
