"""Findings in libraries that doap cannot prevent, with the reason."""

HDF5 = ("features-h5", "matches-h5", "feature-file", "match-file", "mat-7.3")

REASONS: dict[tuple[str, str], str] = {
    **{(name, "time"): "libhdf5 loops without end on some damaged heaps and attributes" for name in HDF5},
    **{(name, "signal"): "libhdf5 crashes on some damaged objects" for name in HDF5},
    ("matconvnet", "signal"): "SciPy's reader of structures, which doap convert needs, crashes on damaged files",
}
"""By format and kind of outcome. They are counted apart from findings."""
