"""Bridges to the tools that use local features: OpenCV, kornia, COLMAP, hloc, DBoW, ONNX and model hubs."""
