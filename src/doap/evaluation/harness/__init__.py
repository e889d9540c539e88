"""Shared parts of all benchmarks: methods, cached descriptors, results, tables, figures."""
