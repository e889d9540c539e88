"""Jittered views: simulated patches of the same point in other photographs."""
