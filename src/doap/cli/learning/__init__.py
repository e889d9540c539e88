"""Commands that train descriptors, and repeat the experiments of the paper."""
