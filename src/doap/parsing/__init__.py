"""Files that others may have written or damaged: every fault is an error, and size and depth are bounded."""
