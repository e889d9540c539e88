"""Homographies, ellipses, robust estimation, and ground truth of image pairs."""
