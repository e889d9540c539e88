"""Frames compared on photos and views of them from the side."""
