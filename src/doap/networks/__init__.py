"""Networks and baselines that map patches to descriptors."""

# Here and not in the registry, so that the command line can name it without importing torch.
DEFAULT_MODEL = "doap-128"
