"""Objectives: tensors in, a scalar out. `loss(outputs, groups)` for each of them."""

from doap.objectives.average_precision import AveragePrecisionLoss, Kind

__all__ = ["AveragePrecisionLoss", "Kind"]
