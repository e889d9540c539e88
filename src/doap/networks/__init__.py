"""Networks and baselines that map patches to descriptors."""

# Not in the registry, so that the command line can print it without importing torch.
DEFAULT_MODEL = "doap-128"


def with_length(name_or_path: str, dimensions: int | None) -> str:
    """Return the name of a prefix of a model, `NAME@64`; without a length, the name itself."""
    return name_or_path if dimensions is None else f"{name_or_path}@{dimensions}"
