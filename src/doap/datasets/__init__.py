"""Data sets: containers, official data sets, sets built from photos, batches, label mining."""
