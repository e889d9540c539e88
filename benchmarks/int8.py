"""Speed and accuracy of int8 networks, relative to float32 in the same run.

    python benchmarks/int8.py                          # on all cores
    python benchmarks/int8.py --threads 2
    python benchmarks/int8.py --oxford data/oxford     # accuracy instead: mAP on the Oxford sequences, in minutes

Writes benchmarks/results/int8-<device>.json, int8-without-vnni-<device>.json on x86 CPUs without 8-bit dot products,
or int8-oxford.json.

The timed function is `Descriptor`, from uint8 patches of 32x32 to unit vectors or bits, in batches of 128. Baselines:
float32 as trained, float32 in its inference form (`optimize_for_inference`), and the float32 network in onnxruntime,
with the same normalisation of patches. All are timed alternately; the ratio is the median over the rounds of the ratio
within a round. The limit is the ratio of operations per instruction: a dot-product instruction multiplies four bytes
where one of float32 multiplies one number. Without VNNI, one of 16 bits multiplies two and another one adds them.
mAP: DoG keypoints, patches at extent 12, as in docs/results-oxford.md; "mixed" describes the first image of a pair in
float32 and the second in int8.
"""

import argparse
import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession, SessionOptions
from torch import Tensor

import doap
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import Method, PatchExtractor
from doap.evaluation.image_pairs.oxford import find_oxford
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import score_pair
from doap.networks.descriptor import Descriptor
from doap.networks.inference import optimize_for_inference
from doap.networks.int8.layers import Layer, Sum, read_layers
from doap.networks.int8.operands import choose_operands
from doap.networks.network import PatchNetwork, normalise, split_extents
from doap.types import Descriptors, Frames, Grey
from machine import RESULTS, write_result

MODELS = ("doap-128", "doap-256b", "doap-large-128", "doap-tiny-128", "doap-tiny-256b")
BATCH, BATCHES = 128, 8
DETECTOR, EXTENT, KEYPOINTS = "dog", 12.0, 1000
LIMITS = {"u8s8": 4.0, "s8s8": 4.0, "u8u8": 1.0}


class OnnxFloat(PatchNetwork):
    """The float32 network in onnxruntime."""

    def __init__(self, model: Descriptor) -> None:
        super().__init__(model.network.dimensions, model.input_size)
        options = SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        size = model.input_size >> model.network.surroundings
        graph = float_graph(read_layers(model), size)
        self.session = InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.surroundings = model.network.surroundings

    def forward(self, patches: Tensor) -> Tensor:
        """Compute the activations of (N, 1, S, S) patches."""
        parts = split_extents(patches, self.surroundings)
        return torch.from_numpy(self.session.run(None, {"patches": normalise(parts).numpy()})[0])


def float_graph(layers: Sequence[Layer | Sum], size: int) -> bytes:
    """Return the float32 graph of a network, as onnxruntime computes it fastest: convolutions in NCHW."""
    nodes: list[NodeProto] = []
    constants: list[TensorProto] = []
    values, layer_inputs = "patches", []
    for index, (before, layer) in enumerate(pairwise([None, *layers])):
        assert layer is not None
        layer_inputs.append(values)
        if isinstance(layer, Sum):
            nodes.append(helper.make_node("Add", [values, layer_inputs[layer.first]], [f"layer{index}"]))
            nodes.append(helper.make_node("Relu", [f"layer{index}"], [f"relu{index}"]))
            values = f"relu{index}"
            continue
        inputs = [values, f"weight{index}", f"bias{index}"]
        constants += [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in zip(inputs[1:], (layer.weight, layer.bias), strict=True)
        ]
        output = "activations" if layer is layers[-1] else f"layer{index}"
        if layer.is_convolution:
            strides = [layer.stride] * 2
            nodes.append(helper.make_node("Conv", inputs, [output], pads=[layer.padding] * 4, strides=strides))
        else:
            if isinstance(before, Sum) or (before is not None and before.is_convolution):
                nodes.append(helper.make_node("Transpose", [values], ["nhwc"], perm=[0, 2, 3, 1]))
                columns = np.array([-1, layer.weight.shape[1]])
                constants.append(numpy_helper.from_array(columns, "columns"))
                nodes.append(helper.make_node("Reshape", ["nhwc", "columns"], ["flat"]))
                inputs[0] = "flat"
            nodes.append(helper.make_node("Gemm", inputs, [output], transB=1))
        values = output
        if layer.relu:
            nodes.append(helper.make_node("Relu", [output], [f"relu{index}"]))
            values = f"relu{index}"
    last = layers[-1]
    assert isinstance(last, Layer)
    graph = helper.make_graph(
        nodes,
        "float32",
        [helper.make_tensor_value_info("patches", TensorProto.FLOAT, ["N", 1, size, size])],
        [helper.make_tensor_value_info("activations", TensorProto.FLOAT, ["N", len(last.bias)])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialised: bytes = model.SerializeToString()
    return serialised


def measure_speeds(name: str, rounds: int) -> dict[str, float]:
    """Return the patches per second of the forms of a model, and the ratios of int8 to the others."""
    exact = doap.load(name, fast=False)
    forms = {
        "float32": exact,
        "float32, inference form": optimize_for_inference(exact, torch.float32),
        "float32, onnxruntime": Descriptor(OnnxFloat(exact), exact.kind, exact.extent, name).eval(),
        "int8": doap.load(name, int8=True),
    }
    size = exact.input_size
    patches = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (BATCH * BATCHES, size, size), dtype=np.uint8))
    seconds: dict[str, list[float]] = {form: [] for form in forms}
    with torch.inference_mode():
        for _ in range(rounds + 1):
            for form, model in forms.items():
                start = time.perf_counter()
                for batch in torch.split(patches, BATCH):
                    model(batch)
                seconds[form].append(time.perf_counter() - start)
    times = {form: np.array(values[1:]) for form, values in seconds.items()}  # the first round is the warm-up
    speeds = {f"{form}: patches per second": len(patches) / float(values.min()) for form, values in times.items()}
    ratios = {
        f"int8 / {form}": float(np.median(values / times["int8"])) for form, values in times.items() if form != "int8"
    }
    return speeds | ratios


class Mixed:
    """Describes the first image of each pair with one method and the second with another."""

    def __init__(self, first: Method, second: Method) -> None:
        self.name = f"{first.name}, mixed"
        self.methods = first, second
        self.count = 0

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Return the descriptors of the (N, 2, 3) frames of an image."""
        method = self.methods[self.count % 2]
        self.count += 1
        return method.describe_frames(image, frames)


def measure_accuracy(folder: Path, models: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return AP by sequence and the mean over sequences of every model in float32, int8 and mixed."""
    extractor, cache = PatchExtractor("cpu"), DescriptorCache()
    describers: list[Method | Mixed] = []
    for name in models:
        pair = [
            Method(label, name, model, EXTENT, extractor, cache, DETECTOR)
            for label, model in ((name, doap.load(name, fast=False)), (f"{name}, int8", doap.load(name, int8=True)))
        ]
        describers += [*pair, Mixed(pair[0], pair[1])]
    reader = PairReader(DETECTOR, KEYPOINTS)
    precisions: dict[str, dict[str, list[float]]] = {describer.name: {} for describer in describers}
    for files in find_oxford(folder):
        pair_of_images = reader.open(files)
        for describer in describers:
            score: Any = score_pair(pair_of_images, describer)["ap"]
            precisions[describer.name].setdefault(pair_of_images.sequence, []).append(float(score))
    means = {
        name: {sequence: float(np.mean(values)) for sequence, values in sequences.items()}
        for name, sequences in precisions.items()
    }
    return {name: {**sequences, "mean": float(np.mean(list(sequences.values())))} for name, sequences in means.items()}


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, help="threads of the CPU; all by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--oxford", type=Path, help="folder of the Oxford sequences")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="accuracy keeps the rows of other models")
    parser.add_argument("--try", dest="dry_run", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.oxford:
        accuracy = measure_accuracy(options.oxford, options.models)
        for name, sequences in accuracy.items():
            print(f"{name}: " + ", ".join(f"{sequence} {value:.2f}" for sequence, value in sequences.items()))
        if not options.dry_run:
            output = RESULTS / "int8-oxford.json"
            others = {} if set(MODELS) <= set(options.models) else json.loads(output.read_text())["AP %"]
            settings = {"detector": DETECTOR, "extent": EXTENT, "keypoints": KEYPOINTS}
            output.write_text(json.dumps({**settings, "AP %": others | accuracy}, indent=1) + "\n")
        return
    speeds = {}
    for name in options.models:
        speeds[name] = measure_speeds(name, options.rounds)
        print(f"{name}: " + "; ".join(f"{key} {value:,.2f}" for key, value in speeds[name].items()))
    if not options.dry_run:
        operands = choose_operands()
        benchmark = "int8-without-vnni" if operands == "u8u8" else "int8"
        write_result(benchmark, "cpu", {"limit of int8 / float32": LIMITS[operands], "models": speeds})


if __name__ == "__main__":
    main()
