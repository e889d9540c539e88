"""From a patch set and a recipe to weights."""
