"""Losses of descriptor learning: `loss(outputs, groups, ignore)` maps raw activations to a scalar.

`outputs` are (M, d) raw activations of the network, `groups` (M,) integers (patches of one 3D point share a group),
`ignore` an `IgnoreTable` or None. Normalisation is part of the loss.

    AveragePrecisionLoss              Average Precision, the listwise objective (He et al., CVPR 2018, section 3.2)
    DistributedAveragePrecisionLoss   the same over the batches of all processes
    GatheredLoss                      any other loss over the batches of all processes
    NestedLoss                        mean of the losses of several prefixes of the activations

    TripletLoss                       TFeat, triplets with anchor swap (Balntas et al., BMVC 2016)
    HistogramLoss                     overlap of similarity histograms (Ustinova and Lempitsky, NIPS 2016)
    L2NetLoss                         L2-Net, softmax over distances (Tian et al., CVPR 2017)
    GlobalOrthogonalLoss              GOR, spread-out descriptors (Zhang et al., ICCV 2017)
    HardNetLoss                       HardNet, hardest negative in the batch (Mishchuk et al., NIPS 2017)
    SOSNetLoss                        SOSNet, second order similarity (Tian et al., CVPR 2019)
    FastAPLoss                        FastAP, AP of squared distances (Cakir et al., CVPR 2019)
    HyNetLoss                         HyNet, hybrid similarity (Tian et al., NeurIPS 2020)
    SmoothAPLoss                      Smooth-AP, AP with sigmoids (Brown et al., ECCV 2020)

The distillation losses are called as `loss(outputs, teacher_outputs)`:

    ImitationLoss                     similarity of the student's descriptors to the teacher's
    SimilarityLoss                    difference between the student's and the teacher's similarities

`backward_in_chunks` trains on lists longer than the network's batch.
"""

from doap.objectives.baselines.fastap import FastAPLoss
from doap.objectives.baselines.gor import GlobalOrthogonalLoss
from doap.objectives.baselines.hardnet import HardNetLoss
from doap.objectives.baselines.histogram import HistogramLoss
from doap.objectives.baselines.hynet import HyNetLoss
from doap.objectives.baselines.l2net import L2NetLoss
from doap.objectives.baselines.smoothap import SmoothAPLoss
from doap.objectives.baselines.sosnet import SOSNetLoss
from doap.objectives.baselines.triplet import TripletLoss
from doap.objectives.chunked_backward import backward_in_chunks
from doap.objectives.distillation import ImitationLoss, SimilarityLoss
from doap.objectives.distributed import DistributedAveragePrecisionLoss, GatheredLoss
from doap.objectives.lists import IgnoreTable
from doap.objectives.loss import AveragePrecisionLoss
from doap.objectives.nested import NestedLoss
from doap.types import Kind

__all__ = [
    "AveragePrecisionLoss",
    "DistributedAveragePrecisionLoss",
    "FastAPLoss",
    "GatheredLoss",
    "GlobalOrthogonalLoss",
    "HardNetLoss",
    "HistogramLoss",
    "HyNetLoss",
    "IgnoreTable",
    "ImitationLoss",
    "Kind",
    "L2NetLoss",
    "NestedLoss",
    "SOSNetLoss",
    "SimilarityLoss",
    "SmoothAPLoss",
    "TripletLoss",
    "backward_in_chunks",
]
