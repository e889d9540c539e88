"""The demo's photos, which come with scikit-image and scikit-learn."""

from pathlib import Path

import skimage
import sklearn

from doap.images.reading import read_grey
from doap.types import Grey

_SKIMAGE = Path(skimage.__file__).parent / "data"
_SKLEARN = Path(sklearn.__file__).parent / "datasets" / "images"

TRAIN = (
    _SKIMAGE / "brick.png",
    _SKIMAGE / "camera.png",
    _SKIMAGE / "chelsea.png",
    _SKIMAGE / "clock_motion.png",
    _SKIMAGE / "coins.png",
    _SKIMAGE / "grass.png",
    _SKIMAGE / "gravel.png",
    _SKIMAGE / "hubble_deep_field.jpg",
    _SKIMAGE / "ihc.png",
    _SKIMAGE / "moon.png",
    _SKIMAGE / "page.png",
    _SKIMAGE / "retina.jpg",
    _SKIMAGE / "rocket.jpg",
    _SKIMAGE / "text.png",
    _SKLEARN / "flower.jpg",
)

# Never trained on. The motorcycles are a real stereo pair; the left one is also matched with warped copies of itself.
TEST = (
    _SKIMAGE / "astronaut.png",
    _SKIMAGE / "coffee.png",
    _SKIMAGE / "motorcycle_left.png",
    _SKLEARN / "china.jpg",
)
STEREO = _SKIMAGE / "motorcycle_left.png", _SKIMAGE / "motorcycle_right.png"


def read_photos(paths: tuple[Path, ...]) -> list[tuple[str, Grey]]:
    """Read photos; return the name and the image of each."""
    return [(path.stem, read_grey(path)) for path in paths]
