"""Commands of `doap data`."""
