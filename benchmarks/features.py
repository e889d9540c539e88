"""Speed from an image to 2,000 features, as ratios to OpenCV's SIFT in the same run.

    python benchmarks/features.py                   # on a CPU, all its cores
    python benchmarks/features.py --threads 1
    python benchmarks/features.py --device cuda     # also images in lists

Writes benchmarks/results/features-<device>.json.

The image is a mosaic of four photos of scikit-image, 1024x1024 pixels. SIFT is `detectAndCompute` on all cores. The
whole is `doap.detect_and_describe` from an array to arrays; detection, with corrected frames as well, extraction of
patches by their size, and network are also timed alone. Everything is timed alternately in rounds, and the best round
of each counts. The peak is that of a float32 matrix product by torch in the same run; the share of the network's
multiplications and additions in it is the hardware's limit for exact float32.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import cv2
import numpy as np
import skimage
import torch
from torch.utils.flop_counter import FlopCounterMode

import doap
from doap.choices import FrameShape
from doap.images.detection import detect
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.networks.descriptor import Descriptor, describe_patches
from doap.types import Grey
from machine import write_result

MODELS = tuple(name for name in doap.list_models() if "demo" not in name)
MODES: dict[str, dict[str, bool]] = {"fast": {}, "exact": {"fast": False}, "int8": {"int8": True}}
FRAME_SHAPES: tuple[FrameShape, ...] = ("detected", "baumberg", "learned")
KEYPOINTS = 2000
LIST_LENGTH = 16  # images in one call on a GPU
PRODUCT_SIZE = {"cpu": 2048, "cuda": 8192}


def mosaic() -> Grey:
    """Return four photos as one image of 1024x1024 pixels."""
    photos = (
        skimage.data.camera(),
        skimage.data.astronaut(),
        skimage.data.coffee(),
        skimage.data.stereo_motorcycle()[0],
    )
    greys = [photo if photo.ndim == 2 else cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY) for photo in photos]
    a, b, c, d = (cv2.resize(grey, (512, 512), interpolation=cv2.INTER_AREA) for grey in greys)
    return np.asarray(np.block([[a, b], [c, d]]), np.uint8)


def best_seconds(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the shortest wall time of each function over the rounds, after a warm-up."""
    best = dict.fromkeys(works, np.inf)
    for number in range(rounds + 1):
        for name, work in works.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if number:
                best[name] = min(best[name], time.perf_counter() - start)
    return {name: float(seconds) for name, seconds in best.items()}


def load_models(device: str) -> dict[str, Descriptor]:
    """Load all models in all modes; modes that a model or machine does not have are named and left out."""
    models = {}
    for name in MODELS:
        for mode, options in MODES.items():
            try:
                models[f"{name}, {mode}"] = doap.load(name, device, **options)
            except (doap.DoapError, ModuleNotFoundError) as error:
                print(f"{name}, {mode}: {error}")
    return models


def flops_per_patch(name: str) -> float:
    """Count the multiplications and additions of a network for one patch."""
    model = doap.load(name, fast=False)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.zeros(1, model.input_size, model.input_size))
    return float(counter.get_total_flops())


def steps(image: Grey, models: dict[str, Descriptor], device: str) -> dict[str, Callable[[], object]]:
    """Return everything that is timed, by name."""
    sift = cv2.SIFT.create(nfeatures=KEYPOINTS)
    given = torch.from_numpy(image).to(device) if device != "cpu" else image
    frames = torch.from_numpy(detect(given, max_keypoints=KEYPOINTS).frames)
    works: dict[str, Callable[[], object]] = {"SIFT": lambda: sift.detectAndCompute(image, None)}
    for shape in FRAME_SHAPES:
        works[f"detect, {shape}"] = lambda shape=shape: detect(given, frames=shape, max_keypoints=KEYPOINTS)  # type: ignore[misc]
    for name, model in models.items():
        size, extent = model.input_size, model.extent_for("dog")
        cut = partial(extract_patch_tensor, frames=frames, size=size, extent=extent)
        works[f"cut, {size}x{size}"] = lambda cut=cut: cut(Pyramid(given))  # type: ignore[misc]
        patches = cut(Pyramid(given))
        works[f"{name}: network"] = partial(describe_patches, patches, model)
        works[f"{name}: whole"] = lambda model=model: doap.detect_and_describe(  # type: ignore[misc]
            image, model, max_keypoints=KEYPOINTS
        )
        if device != "cpu":
            works[f"{name}: list"] = lambda model=model: doap.detect_and_describe(  # type: ignore[misc]
                [given] * LIST_LENGTH, model, max_keypoints=KEYPOINTS
            )
    side = PRODUCT_SIZE["cpu" if device == "cpu" else "cuda"]
    a, b = torch.randn(2, side, side, device=device)
    works["product"] = lambda: a @ b
    return works


def main() -> None:
    """Measure all models, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, help="threads of the CPU; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--try", dest="dry_run", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
        cv2.setNumThreads(options.threads)
    image, models = mosaic(), load_models(options.device)
    seconds = best_seconds(steps(image, models, options.device), options.rounds)
    side = PRODUCT_SIZE[options.device]
    peak, sift = 2 * side**3 / seconds["product"], seconds["SIFT"]
    print(f"SIFT {sift:.3f} s; float32 peak {peak / 1e9:,.0f} GFLOP/s")
    parts = {name: part for name, part in seconds.items() if name.startswith(("detect", "cut"))}
    for name, part in parts.items():
        print(f"{name}: {part:.3f} s, {part / sift:.2f}x SIFT")
    results = {}
    for name in models:
        flops = KEYPOINTS * flops_per_patch(name.partition(",")[0])
        network, whole = seconds[f"{name}: network"], seconds[f"{name}: whole"]
        results[name] = {
            "seconds": whole,
            "ratio to SIFT": whole / sift,
            "network seconds": network,
            "share of float32 peak": flops / network / peak,
        }
        text = f"{name}: {whole:.3f} s, {whole / sift:.2f}x SIFT; network {network:.3f} s, {flops / network / peak:.0%}"
        if f"{name}: list" in seconds:
            results[name]["seconds per image of a list"] = seconds[f"{name}: list"] / LIST_LENGTH
            text += f"; in lists {seconds[f'{name}: list'] / LIST_LENGTH:.4f} s per image"
        print(text)
    if not options.dry_run:
        shared = {"SIFT seconds": sift, "seconds": parts, "float32 peak FLOP/s": peak}
        write_result("features", options.device, {"keypoints": KEYPOINTS, **shared, "models": results})


if __name__ == "__main__":
    main()
