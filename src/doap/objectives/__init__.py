"""Objectives: tensors in, a scalar out. `loss(outputs, groups, ignore)` for each of them."""

from doap.objectives.distillation import ImitationLoss, SimilarityLoss
from doap.objectives.distributed import DistributedAveragePrecisionLoss, UnionLoss
from doap.objectives.fastap import FastAPLoss
from doap.objectives.gor import GlobalOrthogonalLoss
from doap.objectives.hardnet import HardNetLoss
from doap.objectives.histogram import HistogramLoss
from doap.objectives.hynet import HyNetLoss
from doap.objectives.l2net import L2NetLoss
from doap.objectives.lists import IgnoreTable, Kind
from doap.objectives.long_lists import backward_in_chunks
from doap.objectives.loss import AveragePrecisionLoss
from doap.objectives.smoothap import SmoothAPLoss
from doap.objectives.sosnet import SOSNetLoss
from doap.objectives.tfeat import TripletLoss

__all__ = [
    "AveragePrecisionLoss",
    "DistributedAveragePrecisionLoss",
    "FastAPLoss",
    "GlobalOrthogonalLoss",
    "HardNetLoss",
    "HistogramLoss",
    "HyNetLoss",
    "IgnoreTable",
    "ImitationLoss",
    "Kind",
    "L2NetLoss",
    "SOSNetLoss",
    "SimilarityLoss",
    "SmoothAPLoss",
    "TripletLoss",
    "UnionLoss",
    "backward_in_chunks",
]
