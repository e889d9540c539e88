"""Metrics on ranked lists, and the significance of differences."""
