"""Objectives: tensors in, a scalar out. `loss(outputs, groups, ignore)` for each of them."""

from doap.objectives.baselines.fastap import FastAPLoss
from doap.objectives.baselines.gor import GlobalOrthogonalLoss
from doap.objectives.baselines.hardnet import HardNetLoss
from doap.objectives.baselines.histogram import HistogramLoss
from doap.objectives.baselines.hynet import HyNetLoss
from doap.objectives.baselines.l2net import L2NetLoss
from doap.objectives.baselines.smoothap import SmoothAPLoss
from doap.objectives.baselines.sosnet import SOSNetLoss
from doap.objectives.baselines.triplet import TripletLoss
from doap.objectives.distillation import ImitationLoss, SimilarityLoss
from doap.objectives.distributed import DistributedAveragePrecisionLoss, UnionLoss
from doap.objectives.lists import IgnoreTable
from doap.objectives.long_lists import backward_in_chunks
from doap.objectives.loss import AveragePrecisionLoss
from doap.types import Kind

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
