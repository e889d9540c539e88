"""DoG detection in torch, for images on a GPU."""
