"""Readers of the official data sets."""
