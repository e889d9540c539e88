"""Networks and baselines that map patches to descriptors."""

# Not in the registry, so that the command line can print it without importing torch.
DEFAULT_MODEL = "doap-128"
