"""Networks: patches in, descriptors out."""
