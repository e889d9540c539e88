"""The demo's photos: pictures that come inside scikit-image and scikit-learn."""

from pathlib import Path

import skimage
import sklearn

from doap.images.reading import read_grey
from doap.types import Grey

_SKIMAGE = Path(skimage.__file__).parent / "data"
_SKLEARN = Path(sklearn.__file__).parent / "datasets" / "images"

TRAINING = (
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

# Never trained on. The two motorcycles are a real stereo pair: the first is also matched with the second.
HELD_OUT = (
    _SKIMAGE / "astronaut.png",
    _SKIMAGE / "coffee.png",
    _SKIMAGE / "motorcycle_left.png",
    _SKLEARN / "china.jpg",
)
STEREO = _SKIMAGE / "motorcycle_left.png", _SKIMAGE / "motorcycle_right.png"


def read(paths: tuple[Path, ...]) -> list[tuple[str, Grey]]:
    """Name and picture of each path."""
    return [(path.stem, read_grey(path)) for path in paths]
