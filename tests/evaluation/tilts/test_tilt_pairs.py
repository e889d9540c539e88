import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from doap import DoapError
from doap.evaluation.tilts import frame_methods
from doap.evaluation.tilts.frame_methods import METHODS, apply_frame_method
from doap.evaluation.tilts.pairs import TiltTask, corner_error, find_correct, score_photo
from doap.geometry.ellipses import scales
from doap.images.extraction import Pyramid
from doap.images.frames import detect_dog, first_of_each_ellipse, transform_frames
from doap.images.tilts import rotation
from doap.types import Grey
from support.frame_measures import ellipses


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_keypoints_and_their_centres(name: str, photo: Grey) -> None:
    if name == "kornia":
        pytest.importorskip("kornia")
    frames = detect_dog(photo, 60)
    keypoints = first_of_each_ellipse(frames)
    assert len(keypoints) < len(frames)
    corrected, rows = apply_frame_method(name, Pyramid(photo), frames)
    np.testing.assert_array_equal(corrected[:, :, 2], frames[rows, :, 2])
    assert np.isfinite(corrected).all()
    if name == "detected":
        np.testing.assert_array_equal(corrected, frames)
        np.testing.assert_array_equal(rows, np.arange(len(frames)))
        return
    assert len(rows) > len(keypoints)
    np.testing.assert_array_equal(np.unique(rows), keypoints)
    for row in keypoints:
        shapes = ellipses(corrected[rows == row])
        np.testing.assert_allclose(shapes, shapes[:1].repeat(len(shapes), 0), rtol=1e-4, atol=1e-3)
    if name in ("baumberg", "kornia"):
        np.testing.assert_allclose(scales(corrected), scales(frames[rows]), rtol=1e-2)


def test_without_kornia_the_error_says_what_to_install(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    frame_methods._kornia_estimator.cache_clear()
    monkeypatch.setitem(sys.modules, "kornia.feature", None)
    with pytest.raises(DoapError, match=r"^kornia is not installed; run: pip install 'doap\[baselines\]'$"):
        apply_frame_method("kornia", Pyramid(photo), detect_dog(photo, 5))


def test_corner_error_of_a_shift() -> None:
    shift = np.array([[1, 0, 3], [0, 1, 4], [0, 0, 1.0]])
    assert corner_error(shift, np.eye(3), (40, 60)) == pytest.approx(5)
    assert corner_error(2 * shift, shift, (40, 60)) == pytest.approx(0)


def test_transformed_frames_are_correct(photo: Grey) -> None:
    frames, homography = detect_dog(photo, 50), rotation(0.4)
    moved = transform_frames(frames, homography)
    assert find_correct(frames, moved, homography).diagonal().all()
    moved[:, :, 2] += 2.2  # 3.1 pixels along the diagonal
    assert not find_correct(frames, moved, homography).diagonal().any()
    moved = transform_frames(frames, homography)
    moved[:, :, :2] *= 1.6
    assert not find_correct(frames, moved, homography).diagonal().any()


def test_scores_of_a_photo(photo: Grey, tmp_path: Path) -> None:
    file = tmp_path / "photo.png"
    Image.fromarray(photo).save(file)
    methods = ("detected", "baumberg")
    task = TiltTask(file, 0, methods, "doap-tiny-128", tilts=(1.0, 4.0), turns=(30.0,), keypoints=300, size=320)
    scores = {(score.method, score.tilt): score for score in score_photo(task)}
    assert set(scores) == {(method, tilt) for method in methods for tilt in (1.0, 4.0)}
    assert scores["detected", 1.0].ap > 0.8
    assert scores["detected", 1.0].is_solved
    assert scores["detected", 4.0].ap < scores["baumberg", 4.0].ap
    assert score_photo(TiltTask(tmp_path / "missing.png", 0, methods)) == []
