"""Own photos to sets, splits, HPatches-format folders and image pairs."""
