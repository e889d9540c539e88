"""Small networks for phones and CPUs, whose head is a linear layer."""
