"""Patch sets and the batches drawn from them."""
