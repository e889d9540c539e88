"""Agreement of the detector vlfeat-harris-affine, and of our patches, with the VLFeat library.

    apt-get install libvlfeat1        # Debian, Ubuntu: VLFeat 0.9.21 as libvl.so
    python benchmarks/vlfeat.py /usr/lib/x86_64-linux-gnu/libvl.so.0.9.21 data/oxford/*/img1.*

Without root, `apt-get download libvlfeat1 && dpkg -x libvlfeat1_*.deb vlfeat` unpacks the library. Built from VLFeat's
sources, it is `make ARCH=glnxa64 dll` and bin/glnxa64/libvl.so.

A frame of one side is reproduced if the other has a frame within 0.5 pixels, with a scale within 5 % and an overlap
above 0.9. Patches at extent 3 are compared by their mean correlation, at VLFeat's default smoothing and without any.
`--record FILE` writes VLFeat's frames of a photo of scikit-image instead, which the tests compare with.
"""

import argparse
import ctypes
from pathlib import Path
from time import perf_counter

import numpy as np
import skimage
from numpy.typing import NDArray

from doap.geometry.ellipses import overlap, scales
from doap.images.detectors import DETECTORS
from doap.images.extraction import extract_patches
from doap.images.reading import read_grey
from doap.types import Frames, Grey

HARRIS_LAPLACE = 4  # VlCovDetMethod
MARGIN = 2.0  # of vl_covdet, in scales
EXTENT = 3.0
RADIUS = 16  # a patch has 33 x 33 pixels
SMOOTHINGS = (1.0, 0.0)
RECORDED = slice(60, 300), slice(120, 440)  # of the photo
MAX_DISTANCE, MAX_SCALE_RATIO, MIN_OVERLAP = 0.5, 1.05, 0.9


class EllipseFrame(ctypes.Structure):
    """VlFrameOrientedEllipse."""

    _fields_ = [(name, ctypes.c_float) for name in ("x", "y", "a11", "a12", "a21", "a22")]


class Vlfeat:
    """`vl_covdet(image, 'Method', 'HarrisLaplace', 'EstimateAffineShape', true)`.

    Args:
        library: Path of libvl.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library.resolve()))
        handle, size, real = ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_double
        signatures = {
            "new": (handle, [ctypes.c_int]),
            "put_image": (ctypes.c_int, [handle, handle, size, size]),
            "detect": (None, [handle]),
            "drop_features_outside": (None, [handle, real]),
            "extract_affine_shape": (None, [handle]),
            "get_num_features": (size, [handle]),
            "get_features": (handle, [handle]),
            "extract_patch_for_frame": (ctypes.c_int, [handle, handle, size, real, real, EllipseFrame]),
            "delete": (None, [handle]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._library, f"vl_covdet_{name}")
            function.restype, function.argtypes = result, arguments

    def detect(self, image: Grey) -> tuple[Frames, list[NDArray[np.float32]]]:
        """Detect frames and extract their patches.

        Returns:
            (N, 2, 3) frames in VLFeat's order, and (N, 33, 33) patches in 0..255 for each of `SMOOTHINGS`.
        """
        library, plane = self._library, np.ascontiguousarray(image / 255, np.float32)
        detector = library.vl_covdet_new(HARRIS_LAPLACE)
        try:
            library.vl_covdet_put_image(detector, plane.ctypes.data, plane.shape[1], plane.shape[0])
            library.vl_covdet_detect(detector)
            library.vl_covdet_drop_features_outside(detector, MARGIN)
            library.vl_covdet_extract_affine_shape(detector)
            features = self._features(detector)
            side = 2 * RADIUS + 1
            patches = [np.empty((len(features), side, side), np.float32) for _ in SMOOTHINGS]
            for smoothing, target in zip(SMOOTHINGS, patches, strict=True):
                for row, patch in zip(features.tolist(), target, strict=True):
                    library.vl_covdet_extract_patch_for_frame(
                        detector, patch.ctypes.data, RADIUS, EXTENT, smoothing, EllipseFrame(*row)
                    )
        finally:
            library.vl_covdet_delete(detector)
        return np.ascontiguousarray(features[:, [2, 3, 0, 4, 5, 1]].reshape(-1, 2, 3)), [255 * p for p in patches]

    def _features(self, detector: int) -> NDArray[np.float32]:
        """Return x, y, a11, a12, a21, a22 of the features, (N, 6)."""
        count = self._library.vl_covdet_get_num_features(detector)
        buffer = (ctypes.c_float * (10 * count)).from_address(self._library.vl_covdet_get_features(detector) or 0)
        return np.array(buffer, np.float32).reshape(-1, 10)[:, :6]


def reproduced(frames: Frames, others: Frames) -> NDArray[np.bool_]:
    """Return which frames have an equal one among others, (N,)."""
    is_reproduced = np.zeros(len(frames), bool)
    for index, frame in enumerate(frames):
        near = np.hypot(*(others[:, :, 2] - frame[:, 2]).T) < MAX_DISTANCE
        near &= np.abs(np.log(scales(others) / scales(frame[None]))) < np.log(MAX_SCALE_RATIO)
        candidates = others[near]
        is_reproduced[index] = (overlap(np.repeat(frame[None], len(candidates), 0), candidates) > MIN_OVERLAP).any()
    return is_reproduced


def mean_correlation(patches: NDArray[np.generic], others: NDArray[np.generic]) -> float:
    """Return the mean correlation of paired patches."""
    a, b = (p.reshape(len(p), -1).astype(np.float64) for p in (patches, others))
    a, b = (x - x.mean(1, keepdims=True) for x in (a, b))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    textured = norms > 0
    return float(((a * b).sum(1)[textured] / norms[textured]).mean())


def main() -> None:
    """Print one line per image, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="path of libvl.so")
    parser.add_argument("images", type=Path, nargs="*", help="images to compare on")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write VLFeat's frames of a photo to this .csv")
    arguments = parser.parse_args()
    if arguments.record:
        frames, _ = Vlfeat(arguments.library).detect(skimage.data.camera()[RECORDED])
        np.savetxt(arguments.record, frames.reshape(-1, 6), "%.6g", ",", header="a11,a12,x,a21,a22,y", comments="")
        return
    vlfeat, forth, back = Vlfeat(arguments.library), list[NDArray[np.bool_]](), list[NDArray[np.bool_]]()
    for path in arguments.images:
        image = read_grey(path)
        theirs, patches = vlfeat.detect(image)
        start = perf_counter()
        ours = DETECTORS["vlfeat-harris-affine"](image, None)
        seconds = perf_counter() - start
        forth.append(reproduced(theirs, ours))
        back.append(reproduced(ours, theirs))
        cut = extract_patches(image, theirs, 2 * RADIUS + 1, EXTENT)
        alike = ", ".join(
            f"{mean_correlation(cut, other):.3f} at smoothing {smoothing:g}"
            for smoothing, other in zip(SMOOTHINGS, patches, strict=True)
        )
        print(
            f"{path}: VLFeat {len(theirs)} frames, {forth[-1].mean():.2%} reproduced; ours {len(ours)}, "
            f"{back[-1].mean():.2%} in VLFeat's, {seconds:.1f} s; correlation of patches {alike}",
            flush=True,
        )
    print(f"all: {np.concatenate(forth).mean():.2%} of VLFeat's reproduced, {np.concatenate(back).mean():.2%} of ours")


if __name__ == "__main__":
    main()
