"""Draw the pictures of docs/frames.md: frames on a slanted wall as detected and corrected, and a match at tilt 6.

python tools/frame_pictures.py -o docs/images
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import skimage
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

import doap
from doap.datasets.tilted.views import match_frames
from doap.evaluation.tilts.frame_methods import apply_frame_method
from doap.images.extraction import Pyramid
from doap.images.frames import detect_dog, transform_frames
from doap.images.warping import view_from_side
from doap.types import Frames, Grey, Homography

WALL_TILT, MATCH_TILT = 4.0, 6.0
SHOWN = 14  # frames
RADII = 5.0  # scales to which an ellipse is drawn


def draw_frames(axis: Axes, image: Grey, frames: Frames, colours: np.ndarray) -> None:
    """Draw the enlarged ellipses of frames, with their x axes."""
    angles = np.linspace(0, 2 * np.pi, 60)
    circle = RADII * np.stack([np.cos(angles), np.sin(angles)])
    outlines = (frames[:, :, :2] @ circle + frames[:, :, 2:]).transpose(0, 2, 1)
    axis.imshow(image, cmap="gray", vmin=0, vmax=255)
    axis.add_collection(PolyCollection(list(outlines), facecolors="none", edgecolors=colours, linewidths=1.6))
    for frame, colour in zip(frames, colours, strict=True):
        end = frame[:, 2] + RADII * frame[:, 0]
        axis.plot([frame[0, 2], end[0]], [frame[1, 2], end[1]], color=colour, linewidth=1.6)
    axis.set(xticks=[], yticks=[], xlim=(0, image.shape[1] - 1), ylim=(image.shape[0] - 1, 0))


def corrected_ellipses(method: str, image: Grey, frames: Frames) -> Frames:
    """Correct frames; of several that differ by the orientation, return one."""
    corrected, rows = apply_frame_method(method, Pyramid(image), frames)
    return corrected[np.unique(rows, return_index=True)[1]]


def shown_frames(first: Frames, second: Frames, homography: Homography) -> tuple[Frames, Frames]:
    """Choose corresponding frames far from each other, largest first."""
    left, right = match_frames(first, second, homography)
    order = np.argsort(-np.linalg.det(first[left, :, :2]))
    chosen: list[int] = []
    for index in order:
        centre = first[left[index], :, 2]
        if all(np.linalg.norm(centre - first[left[other], :, 2]) > 70 for other in chosen):
            chosen.append(int(index))
    return first[left[chosen[:SHOWN]]], second[right[chosen[:SHOWN]]]


def draw_wall(path: Path) -> None:
    """Draw corresponding frames of a wall from the front and from the side, as detected and as corrected."""
    front = np.ascontiguousarray(skimage.data.brick())
    side, homography = view_from_side(front, WALL_TILT, 0.4, 0.0)
    pairs = shown_frames(detect_dog(front, 3000), detect_dog(side, 3000), homography)
    colours = plt.get_cmap("tab20")(np.arange(len(pairs[0])) % 20)
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    for row, (title, method) in zip(axes, (("as detected", "detected"), ("corrected", "learned")), strict=True):
        for axis, image, frames, where in zip(row, (front, side), pairs, ("front", "side"), strict=True):
            draw_frames(axis, image, corrected_ellipses(method, image, frames), colours)
            if where == "side":  # where the ellipses of the front would be
                mapped = transform_frames(corrected_ellipses(method, front, pairs[0]), homography)
                circle = RADII * np.stack([np.cos(a := np.linspace(0, 2 * np.pi, 60)), np.sin(a)])
                for outline in mapped[:, :, :2] @ circle + mapped[:, :, 2:]:
                    axis.plot(*outline, color="white", linewidth=0.8, linestyle="--")
            axis.set_title(f"{where}, {title}", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_match(path: Path) -> None:
    """Draw the matches of a photo with a view of it of tilt 6."""
    photo = skimage.color.rgb2gray(skimage.data.astronaut())
    front = np.ascontiguousarray((255 * photo).round().astype(np.uint8))
    side, _ = view_from_side(front, MATCH_TILT, 0.6, 0.3)
    model = doap.load("doap-128")
    first, second = (doap.detect_and_describe(image, model, frames="learned") for image in (front, side))
    matches = doap.match(first, second, geometry="homography")
    plain = [doap.detect_and_describe(image, model) for image in (front, side)]
    without = doap.match(*plain, geometry="homography")
    print(f"{int(matches.inliers.sum())} verified matches with learned frames, {without.count_text('mutual')} without")
    matches.draw(front, side, first, second, path, f"tilt {MATCH_TILT:g}: {matches.count_text('mutual')}")


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    draw_wall(options.output / "frames-wall.png")
    draw_match(options.output / "frames-match.png")


if __name__ == "__main__":
    main()
