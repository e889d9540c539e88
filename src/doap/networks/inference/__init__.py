"""Fast inference: folded batch normalisation, fused layers, channels-last memory format, the fastest dtype."""

from doap.networks.inference.folding import fold_normalisation
from doap.networks.inference.optimizing import InferenceNetwork, optimize_for_inference
from doap.networks.inference.precision import fastest_dtype, multiplies_bfloat16

__all__ = [
    "InferenceNetwork",
    "fastest_dtype",
    "fold_normalisation",
    "multiplies_bfloat16",
    "optimize_for_inference",
]
