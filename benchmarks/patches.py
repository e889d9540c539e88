"""Speed of making sets and of drawing batches, each as a ratio to a named peer in the same run.

    python benchmarks/patches.py                   # on a CPU
    python benchmarks/patches.py --device cuda

Writes benchmarks/results/patches-<device>.json.

- converting a Phototour folder: reading its sheets with Pillow and slicing them, all in memory
- detecting frames: kornia's ScaleSpaceDetector (Harris, affine shape, orientation), as many frames of the same picture
- drawing a batch of 4,096 patches: PyTorch's DataLoader over the same memory-mapped set, four workers
- cutting a batch of 4,096 patches from photos: the same frames cut photo by photo, jittered and lit alike
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import skimage
import torch
from PIL import Image

from doap import PatchSet
from doap.datasets.batches.augmentation import sample_symmetries, flip_and_rotate
from doap.datasets.batches.overlap_tables import OverlapTables
from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.batches.resident_patches import ResidentPatches
from doap.datasets.batches.sampling import GroupSampler
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.official.phototour import convert_phototour
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.writer import write_patch_set
from doap.images.detectors import detect_harris_affine
from doap.images.extraction import Pyramid
from doap.images.frames import detect_dog
from doap.images.jitter import jittered_views
from doap.images.reconstruction.scene_frames import detect_pooled_frames
from doap.types import Grey
from machine import write_result

LIST = 4096
SHEETS = 100
Measured = dict[str, float | str]


def seconds(work: Callable[[], object], device: str, times: int) -> float:
    """Wall time of each of many runs, one after the other as a training asks for them, after some to warm up."""
    for _ in range(max(2, times // 5)):
        work()
    wait(device)
    start = time.perf_counter()
    for _ in range(times):
        work()
    wait(device)
    return (time.perf_counter() - start) / times


def wait(device: str) -> None:
    """Let a GPU finish."""
    if device == "cuda":
        torch.cuda.synchronize()


def compared(doap: float, peer: str, other: float, **about: float | str) -> Measured:
    """One row of the result, in seconds."""
    print(f"  doap {1000 * doap:.2f} ms, {peer} {1000 * other:.2f} ms: {other / doap:.1f}x", flush=True)
    return {**about, "doap": doap, "peer": peer, "peer's": other, "ratio": other / doap}


def converting(folder: Path) -> Measured:
    """A Phototour folder of 25,600 patches."""
    source = folder / "phototour"
    source.mkdir()
    random = np.random.default_rng(0)
    for number in range(SHEETS):
        pixels = random.integers(0, 256, (1024, 1024), dtype=np.uint8)
        Image.fromarray(pixels).save(source / f"patches{number:04d}.bmp")
    count = 256 * SHEETS
    (source / "info.txt").write_text("".join(f"{number // 3} 0\n" for number in range(count)))

    def ours() -> None:
        with tempfile.TemporaryDirectory() as place:
            convert_phototour(source, Path(place) / "set", lambda _done, _total: None)

    def theirs() -> None:
        sheets = [np.asarray(Image.open(file)) for file in sorted(source.glob("*.bmp"))]
        np.concatenate([s.reshape(16, 64, 16, 64).swapaxes(1, 2).reshape(-1, 64, 64) for s in sheets])

    print(f"converting {count:,} patches", flush=True)
    doap = seconds(ours, "cpu", 3)
    row = compared(doap, "Pillow, in memory, nothing written", seconds(theirs, "cpu", 3), patches=count)
    return {**row, "patches a second": count / doap}


def detecting() -> Measured:
    """Harris-affine frames, and all that a photo gives a built set."""
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
        theirs = seconds(lambda: detector(tensor), "cpu", 3)
    row = compared(seconds(lambda: detect_harris_affine(image, 500), "cpu", 5), "kornia", theirs, frames=500)
    photo = seconds(lambda: detect_pooled_frames(image, 400), "cpu", 5)
    return {**row, "pooled frames a second": len(detect_pooled_frames(image, 400)) / photo}


def many_patches(folder: Path) -> PatchSet:
    """300,000 groups of four 32x32 patches, memory-mapped, a million pairs of them overlapping."""
    random = np.random.default_rng(0)
    with write_patch_set(folder / "patches", 32) as writer:
        for start in range(0, 1_200_000, 120_000):
            groups = np.arange(start, start + 120_000) // 4
            writer.append(random.integers(0, 256, (120_000, 32, 32), dtype=np.uint8), groups, groups // 1000)
        writer.overlaps = np.sort(random.choice(300_000, (1_000_000, 2)), axis=1)
        writer.overlaps = writer.overlaps[writer.overlaps[:, 0] != writer.overlaps[:, 1]]
    return PatchSet.open(folder / "patches")


def drawing(patches: PatchSet, device: str) -> Measured:
    """A batch: its indices, pixels, flips and turns, and the table of pairs to ignore."""
    resident = ResidentPatches(patches, device)
    tables = OverlapTables(patches, device)
    sampler = GroupSampler(patches, LIST, 0)
    random = torch.Generator(device)
    ours = endless(sampler)

    def draw() -> None:
        indices = next(ours)
        symmetries = sample_symmetries(torch.from_numpy(patches.groups[indices]), random)
        flip_and_rotate(resident.take(indices, random), symmetries)
        tables.ignore_table(indices)

    loader = iter(
        torch.utils.data.DataLoader(
            Memory(patches), batch_sampler=list(sampler.batches(0)), num_workers=4, pin_memory=device == "cuda"
        )
    )
    print(f"drawing {LIST:,} of {len(patches):,} patches", flush=True)
    doap = seconds(draw, device, 100)
    return compared(doap, "DataLoader, 4 workers", seconds(lambda: next(loader).to(device), device, 100), patches=LIST)


def endless(sampler: GroupSampler) -> Iterator[np.ndarray]:
    """Batches of one epoch after another."""
    epoch = 0
    while True:
        yield from sampler.batches(epoch)
        epoch += 1


class Memory(torch.utils.data.Dataset[torch.Tensor]):
    """A patch set as a DataLoader reads it: patch by patch."""

    def __init__(self, patches: PatchSet) -> None:
        self.patches = patches

    def __len__(self) -> int:
        return len(self.patches)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.patches.take([index])[0])


def photos() -> list[tuple[str, Grey]]:
    """96 different cuts of 720x540 from a picture that comes with scikit-image."""
    image = skimage.color.rgb2gray(skimage.data.retina())
    random = np.random.default_rng(0)
    pictures = []
    for number in range(96):
        top, left = (int(random.integers(0, side - size)) for side, size in zip(image.shape, (540, 720), strict=True))
        pictures.append((str(number), (255 * image[top : top + 540, left : left + 720]).astype(np.uint8)))
    return pictures


def cutting(frames: FrameSet, device: str) -> Measured:
    """A batch of fresh views: cut, jittered and lit."""
    resident = ResidentFrames(frames, device)
    random = torch.Generator(device)
    batches = endless(GroupSampler(frames, LIST, 0, views=4))
    pyramids = [Pyramid(frames.read_photo(number), device) for number in range(len(frames.encoded_photos))]

    def theirs() -> None:
        indices = next(batches)
        for photo in np.unique(frames.photos[indices]):
            shown = frames.frames[indices[frames.photos[indices] == photo]]
            jittered_views(pyramids[photo], shown, "hard", 32, frames.extent, random)

    print(f"cutting {LIST:,} patches from {len(frames.encoded_photos)} photos", flush=True)
    doap = seconds(lambda: resident.take(next(batches), random), device, 50)
    return compared(doap, "photo by photo", seconds(theirs, device, 3), patches=LIST)


def main() -> None:
    """Run all, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    device = parser.parse_args().device
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        if device == "cpu":
            result["converting"] = converting(Path(folder))
            if find_spec("kornia"):
                result["detecting"] = detecting()
        result["drawing"] = drawing(many_patches(Path(folder)), device)
        result["cutting"] = cutting(frame_set_from_photos(photos(), lambda image: detect_dog(image, 400)), device)
    write_result("patches", device, result)


if __name__ == "__main__":
    main()
