"""Homographies, ellipses, robust estimation, and the ground truth of image pairs."""
