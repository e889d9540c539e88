"""Exact nearest-neighbour matching of descriptors."""
