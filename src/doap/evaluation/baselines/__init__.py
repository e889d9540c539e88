"""Peers to compare with."""
