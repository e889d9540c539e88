"""From two sets of descriptors to matches, and from matches to geometry."""
