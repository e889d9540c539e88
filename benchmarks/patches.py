"""Speed of building sets and of sampling batches, each as a ratio to a named baseline in the same run.

    python benchmarks/patches.py                   # on a CPU
    python benchmarks/patches.py --device cuda

Writes benchmarks/results/patches-<device>.json. Baselines:

- converting a Phototour folder: reading its sheets with Pillow and slicing them, all in memory
- detecting 2,000 DoG frames in a megapixel, and extracting their patches: OpenCV's SIFT, which detects and describes
  2,000 keypoints with all CPU threads. For the extraction also kornia's extract_patches_from_pyramid
- detecting 500 Harris-affine frames in one image: kornia's ScaleSpaceDetector (Harris, affine shape, orientation)
- sampling a batch of 4,096 patches: PyTorch's DataLoader over the same memory-mapped set, four workers
- extracting a batch of 4,096 patches from photos: the same frames photo by photo, with the same jitter
- the same with a zoom of 2 and a third of the views compressed: without compression
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import skimage
import torch
from PIL import Image

from doap import PatchSet
from doap.datasets.batches.augmentation import flip_and_rotate, sample_symmetries
from doap.datasets.batches.overlap_tables import OverlapTables
from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.batches.resident_patches import ResidentPatches
from doap.datasets.batches.sampling import GroupSampler
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.official.phototour import convert_phototour
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.writer import write_patch_set
from doap.images.detection import detect, detect_batch
from doap.images.detectors import detect_harris_affine
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.images.frames import detect_dog
from doap.images.jitter.views import JitterFactors, jittered_views
from doap.images.reconstruction.scene_frames import detect_pooled_frames
from doap.types import Grey
from machine import write_result

BATCH_SIZE = 4096
EXTENT = 12.0
SHEETS = 100
Row = dict[str, float | str]


def seconds(work: Callable[[], object], device: str, times: int) -> float:
    """Measure the mean wall time of consecutive runs, after a warm-up."""
    for _ in range(max(2, times // 5)):
        work()
    synchronise(device)
    start = time.perf_counter()
    for _ in range(times):
        work()
    synchronise(device)
    return (time.perf_counter() - start) / times


def synchronise(device: str) -> None:
    """Wait for a GPU to finish."""
    if device == "cuda":
        torch.cuda.synchronize()


def compare(doap: float, baseline: str, baseline_seconds: float, **counts: int) -> Row:
    """Return one row of the result, in seconds, and print it."""
    ratio = baseline_seconds / doap
    print(f"  doap {1000 * doap:.2f} ms, {baseline} {1000 * baseline_seconds:.2f} ms: {ratio:.1f}x", flush=True)
    return {**counts, "doap": doap, "baseline": baseline, "baseline seconds": baseline_seconds, "ratio": ratio}


def measure_conversion(folder: Path) -> Row:
    """Convert a Phototour folder of 25,600 patches."""
    source = folder / "phototour"
    source.mkdir()
    random = np.random.default_rng(0)
    for number in range(SHEETS):
        pixels = random.integers(0, 256, (1024, 1024), dtype=np.uint8)
        Image.fromarray(pixels).save(source / f"patches{number:04d}.bmp")
    count = 256 * SHEETS
    (source / "info.txt").write_text("".join(f"{number // 3} 0\n" for number in range(count)))

    def convert() -> None:
        with tempfile.TemporaryDirectory() as target:
            convert_phototour(source, Path(target) / "set")

    def read_sheets() -> None:
        sheets = [np.asarray(Image.open(file)) for file in sorted(source.glob("*.bmp"))]
        np.concatenate([s.reshape(16, 64, 16, 64).swapaxes(1, 2).reshape(-1, 64, 64) for s in sheets])

    print(f"converting {count:,} patches", flush=True)
    doap = seconds(convert, "cpu", 3)
    row = compare(doap, "Pillow, in memory, nothing written", seconds(read_sheets, "cpu", 3), patches=count)
    return {**row, "patches per second": count / doap}


def measure_detection() -> Row:
    """Detect Harris-affine frames, and the pooled frames of a photo in a built set."""
    import kornia

    image = skimage.data.camera()
    tensor = torch.from_numpy(image)[None, None].float() / 255
    detector = kornia.feature.ScaleSpaceDetector(
        500,
        resp_module=kornia.feature.CornerHarris(0.05),
        aff_module=kornia.feature.LAFAffineShapeEstimator(19),
        ori_module=kornia.feature.LAFOrienter(19),
    )
    print("detecting 500 Harris-affine frames in 512x512", flush=True)
    with torch.no_grad():
        baseline = seconds(lambda: detector(tensor), "cpu", 3)
    row = compare(seconds(lambda: detect_harris_affine(image, 500), "cpu", 5), "kornia", baseline, frames=500)
    pooled = seconds(lambda: detect_pooled_frames(image, 400), "cpu", 5)
    return {**row, "pooled frames per second": len(detect_pooled_frames(image, 400)) / pooled}


def megapixel() -> Grey:
    """Return four rotations of a photo side by side, 1024x1024 pixels."""
    photo = np.asarray(skimage.data.camera())
    return np.block([[photo, np.rot90(photo)], [np.rot90(photo, 2), np.rot90(photo, 3)]])


def measure_features(device: str) -> dict[str, Row]:
    """Detect 2,000 DoG frames in a megapixel, and extract their patches of 32 pixels."""
    image = megapixel()
    tensor = torch.from_numpy(image).to(device)
    frames = detect(image, max_keypoints=2000).frames
    sift = cv2.SIFT.create(2000)
    describing = seconds(lambda: sift.detectAndCompute(image, None), "cpu", 3)
    print("detecting DoG frames in 1024x1024 pixels", flush=True)
    rows = {}
    for count in (1, 8) if device == "cuda" else (1,):
        batch = tensor.expand(count, -1, -1)
        detecting = seconds(lambda batch=batch: detect_batch(batch, max_keypoints=2000), device, 5) / count  # type: ignore[misc]
        rows[f"detecting, batch of {count}"] = compare(
            detecting, "SIFT, described as well", describing, frames=len(frames)
        )
    on_device = torch.from_numpy(frames).to(device)
    print(f"extracting {len(frames):,} patches from one image", flush=True)
    cutting = seconds(lambda: extract_patch_tensor(Pyramid(tensor), on_device, 32, EXTENT), device, 10)
    rows["extracting from one image"] = compare(cutting, "SIFT", describing, patches=len(frames))
    if find_spec("kornia"):
        import kornia

        grey, lafs = tensor[None, None].float(), on_device[None] * on_device.new_tensor([EXTENT, EXTENT, 1])
        baseline = seconds(lambda: kornia.feature.extract_patches_from_pyramid(grey, lafs, 32), device, 5)
        rows["extracting from one image, kornia"] = compare(cutting, "kornia", baseline, patches=len(frames))
    return rows


def write_many_patches(folder: Path) -> PatchSet:
    """Write 300,000 groups of four 32x32 patches with a million pairs of overlapping groups, and open them."""
    random = np.random.default_rng(0)
    with write_patch_set(folder / "patches", 32) as writer:
        for start in range(0, 1_200_000, 120_000):
            groups = np.arange(start, start + 120_000) // 4
            writer.append(random.integers(0, 256, (120_000, 32, 32), dtype=np.uint8), groups, groups // 1000)
        writer.overlaps = np.sort(random.choice(300_000, (1_000_000, 2)), axis=1)
        writer.overlaps = writer.overlaps[writer.overlaps[:, 0] != writer.overlaps[:, 1]]
    return PatchSet.open(folder / "patches")


def measure_sampling(patches: PatchSet, device: str) -> Row:
    """Sample a batch: indices, pixels, flips and rotations, and the table of pairs to ignore."""
    resident = ResidentPatches(patches, device)
    tables = OverlapTables(patches, device)
    sampler = GroupSampler(patches, BATCH_SIZE, 0)
    random = torch.Generator(device)
    batches = endless(sampler)

    def sample() -> None:
        indices = next(batches)
        symmetries = sample_symmetries(torch.from_numpy(patches.groups[indices]), random)
        flip_and_rotate(resident.take(indices, random), symmetries)
        tables.ignore_table(indices)

    loader = iter(
        torch.utils.data.DataLoader(
            SinglePatches(patches), batch_sampler=list(sampler.batches(0)), num_workers=4, pin_memory=device == "cuda"
        )
    )
    print(f"sampling {BATCH_SIZE:,} of {len(patches):,} patches", flush=True)
    doap = seconds(sample, device, 100)
    return compare(
        doap, "DataLoader, 4 workers", seconds(lambda: next(loader).to(device), device, 100), patches=BATCH_SIZE
    )


def endless(sampler: GroupSampler) -> Iterator[np.ndarray]:
    """Yield the batches of all epochs."""
    epoch = 0
    while True:
        yield from sampler.batches(epoch)
        epoch += 1


class SinglePatches(torch.utils.data.Dataset[torch.Tensor]):
    """A patch set as a PyTorch dataset of single patches."""

    def __init__(self, patches: PatchSet) -> None:
        self.patches = patches

    def __len__(self) -> int:
        return len(self.patches)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.patches.take([index])[0])


def photos() -> list[tuple[str, Grey]]:
    """Return 96 different crops of 720x540 from an image that comes with scikit-image."""
    image = skimage.color.rgb2gray(skimage.data.retina())
    random = np.random.default_rng(0)
    crops = []
    for number in range(96):
        top, left = (int(random.integers(0, side - size)) for side, size in zip(image.shape, (540, 720), strict=True))
        crops.append((str(number), (255 * image[top : top + 540, left : left + 720]).astype(np.uint8)))
    return crops


def measure_extraction(frames: FrameSet, device: str) -> Row:
    """Extract a batch of jittered views."""
    resident = ResidentFrames(frames, device)
    random = torch.Generator(device)
    batches = endless(GroupSampler(frames, BATCH_SIZE, 0, views_per_group=4))
    pyramids = [Pyramid(frames.read_photo(number), device) for number in range(len(frames.encoded_photos))]

    def extract_by_photo() -> None:
        indices = next(batches)
        for photo in np.unique(frames.photos[indices]):
            own = frames.frames[indices[frames.photos[indices] == photo]]
            jittered_views(pyramids[photo], own, "hard", 32, frames.extent, random)

    print(f"extracting {BATCH_SIZE:,} patches from {len(frames.encoded_photos)} photos", flush=True)
    doap = seconds(lambda: resident.take(next(batches), random), device, 50)
    return compare(doap, "photo by photo", seconds(extract_by_photo, device, 3), patches=BATCH_SIZE)


def measure_compression(frames: FrameSet, device: str) -> Row:
    """Extract a batch of zoomed views, some of them compressed."""
    resident = ResidentFrames(frames, device)
    random = torch.Generator(device)
    batches = endless(GroupSampler(frames, BATCH_SIZE, 0, views_per_group=4))

    def extract(jitter: JitterFactors) -> None:
        indices = next(batches)
        resident.take(indices, random, 2 * torch.rand(len(indices), generator=random, device=device), jitter)

    print(f"extracting {BATCH_SIZE:,} zoomed patches, a third compressed", flush=True)
    fractions = (1 / 3, 0.0)
    compressed, plain = (seconds(partial(extract, JitterFactors(compression=s)), device, 20) for s in fractions)
    return compare(compressed, "without compression", plain, patches=BATCH_SIZE)


def main() -> None:
    """Run all benchmarks, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    device = parser.parse_args().device
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        if device == "cpu":
            result["converting"] = measure_conversion(Path(folder))
            if find_spec("kornia"):
                result["detecting"] = measure_detection()
        result |= measure_features(device)
        result["sampling"] = measure_sampling(write_many_patches(Path(folder)), device)
        frames = frame_set_from_photos(photos(), lambda image: detect_dog(image, 400))
        result["extracting"] = measure_extraction(frames, device)
        result["compressing"] = measure_compression(frames, device)
    write_result("patches", device, result)


if __name__ == "__main__":
    main()
