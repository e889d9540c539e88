"""Networks in 8-bit integers, run by onnxruntime on a CPU (extra `onnx`).

`quantize` returns the int8 form of a model, given the range of the inputs of each of its layers; `calibrate` measures
these ranges on patches. The ranges of a model are stored on its card.
"""

from doap.networks.int8.calibration import calibrate
from doap.networks.int8.layers import check_has_int8
from doap.networks.int8.network import Int8Network, quantize

__all__ = ["Int8Network", "calibrate", "check_has_int8", "quantize"]
