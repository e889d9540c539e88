"""Metrics of ranked lists and pairs, and the significance of differences."""
