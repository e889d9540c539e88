"""Patch retrieval on RomePatches."""
