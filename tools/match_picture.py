"""Draw docs/images/matches.png: a photo matched with a tilted and relit copy of itself.

    python tools/match_picture.py

The photo is NASA's portrait of Eileen Collins, in the public domain, which comes with scikit-image.
"""

from pathlib import Path

import numpy as np
import skimage
import torch
from PIL import Image

import doap
from doap.images.extraction import Pyramid
from doap.images.reading import to_grey
from doap.images.warping import random_homography, relight, warp
from doap.types import Grey

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "matches.png"
SEED = 5


def image_pair() -> tuple[Grey, Grey]:
    """Return the photo and its copy."""
    photo = to_grey(Image.fromarray(skimage.data.astronaut()))
    homography = random_homography(photo.shape, np.random.default_rng(SEED))
    return photo, relight(warp(Pyramid(photo), homography), torch.Generator().manual_seed(SEED))


def main() -> None:
    """Match the pair and draw the verified matches."""
    images = image_pair()
    model = doap.load("doap-256b")
    first, second = doap.detect_and_describe(images, model, max_keypoints=1000)
    matches = doap.match(first, second, geometry="homography")
    title = f"{matches.inliers.sum()} verified matches by {model.name}, {model.bytes} bytes per keypoint"
    matches.draw(*images, first, second, PICTURE, title)
    print(f"{title}: {PICTURE}")


if __name__ == "__main__":
    main()
