"""Training: from a set and a recipe to weights."""
