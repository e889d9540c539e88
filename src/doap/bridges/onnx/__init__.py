"""Export of models to ONNX, `torch.export` and TorchScript, to run without doap or without Python."""

from doap.bridges.onnx.exporting import export_model

__all__ = ["export_model"]
