"""Verification, matching and retrieval on HPatches."""
