"""All benchmarks by name."""

from doap.evaluation.harness.benchmark import Benchmark
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.image_pairs.own_pairs import ImagePairs
from doap.evaluation.image_pairs.oxford import Oxford
from doap.evaluation.image_pairs.warped import Warped
from doap.evaluation.phototour.benchmark import Phototour
from doap.evaluation.romepatches.benchmark import RomePatches

BENCHMARKS: dict[str, type[Benchmark]] = {
    "phototour": Phototour,
    "hpatches": HPatches,
    "romepatches": RomePatches,
    "oxford": Oxford,
    "pairs": ImagePairs,
    "warped": Warped,
}
