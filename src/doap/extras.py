"""Optional dependencies: which extra of the package installs which library."""

EXTRAS = {
    "train": ("lightning", "tensorboard", "yaml"),
    "eval": ("matplotlib", "scipy", "h5py", "yaml", "jinja2"),
    "sfm": ("pycolmap",),
    "demo": ("skimage", "sklearn"),
    "baselines": ("kornia",),
}


def extra_of(module: str) -> str | None:
    """Return the extra that installs a module, or None if no extra does.

    Example:
        >>> extra_of("lightning.fabric")
        'train'
    """
    package = module.partition(".")[0]
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return one line that says how to install a missing optional dependency, or None if it is not one.

    Example:
        >>> missing_extra(ModuleNotFoundError("No module named 'lightning'", name="lightning"))
        "lightning is not installed; run: pip install 'doap[train]'"
    """
    extra = extra_of(error.name or "")
    return None if extra is None else f"{error.name} is not installed; run: pip install 'doap[{extra}]'"
