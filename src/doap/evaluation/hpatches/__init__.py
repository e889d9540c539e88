"""Patch verification, image matching and patch retrieval on HPatches."""
