"""Patch sets and frame sets: official data sets, own photos, batches, label mining."""
