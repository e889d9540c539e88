"""Objectives: tensors in, a scalar out. `loss(outputs, groups)` for each of them."""

from doap.objectives.lists import IgnoreTable, Kind
from doap.objectives.loss import AveragePrecisionLoss

__all__ = ["AveragePrecisionLoss", "IgnoreTable", "Kind"]
