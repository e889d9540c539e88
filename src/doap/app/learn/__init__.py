"""The Learn tab: a small descriptor trained on uploaded photos."""
