"""Correction of frames by a network: the differentiable cut of training, and the correction of detected frames."""
