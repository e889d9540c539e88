"""Benchmarks of descriptors; each takes methods and returns a `Result`."""
