"""Benchmarks: images or patches, a descriptor and a metric give a table."""
