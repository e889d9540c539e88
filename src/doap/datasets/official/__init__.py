"""Readers of the official data sets: Phototour, HPatches, RomePatches, image sequences."""
