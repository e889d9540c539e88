"""Optional dependencies, and which extra of the package installs them."""

OPTIONAL = {
    "faiss": "scale",
    "fastapi": "app",
    "gradio": "app",
    "h5py": "scale",
    "huggingface_hub": "hub",
    "jinja2": "eval",
    "kornia": "baselines",
    "lightning": "train",
    "matplotlib": "eval",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "pycolmap": "sfm",
    "ray": "scale",
    "scipy": "eval",
    "skimage": "demo",
    "sklearn": "demo",
    "tensorboard": "train",
    "uvicorn": "app",
    "yaml": "train",
}
"""Extra that installs each optional library, where the importing package names none."""

PACKAGE_EXTRAS = {
    "app": "app",
    "datasets": "train",
    "demo": "demo",
    "evaluation": "eval",
    "experiments": "train",
    "features": "scale",
    "folders": "scale",
    "report": "eval",
    "training": "train",
}
"""Extra that installs everything that a package of doap needs."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return one line that says how to install a missing optional library, or None if it is not one.

    The extra is the one of the first package of doap, below the command line, that was being imported.

    Example:
        >>> missing_extra(ModuleNotFoundError("No module named 'lightning'", name="lightning.fabric"))
        "lightning is not installed; run: pip install 'doap[train]'"
    """
    library = (error.name or "").partition(".")[0]
    if library not in OPTIONAL:
        return None
    extra = next((PACKAGE_EXTRAS[name] for name in _packages(error) if name in PACKAGE_EXTRAS), OPTIONAL[library])
    return f"{library} is not installed; run: pip install 'doap[{extra}]'"


def _packages(error: ModuleNotFoundError) -> list[str]:
    """Return the packages of doap on the traceback, outermost first."""
    names, traceback = [], error.__traceback__
    while traceback is not None:
        parts = str(traceback.tb_frame.f_globals.get("__name__", "")).split(".")
        if parts[0] == "doap" and len(parts) > 1:
            names.append(parts[1])
        traceback = traceback.tb_next
    return names
