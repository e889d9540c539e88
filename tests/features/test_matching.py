from pathlib import Path

import cv2
import numpy as np
import pytest

import doap
from doap.geometry.homographies import transform_points
from doap.types import Grey
from support.small_models import untrained


def test_features_of_different_models_are_not_matched(photo: Grey) -> None:
    a, b = (doap.detect_and_describe(photo, untrained(name), 20) for name in ("one", "other"))
    with pytest.raises(doap.DoapError, match="one and other cannot be matched"):
        doap.match(a, b)


def test_an_image_matches_itself(photo: Grey) -> None:
    features = doap.detect_and_describe(photo, untrained(), 300)
    matches = doap.match(features, features, "homography")
    assert (matches.indices[:, 0] == matches.indices[:, 1]).all()
    assert matches.inliers.all()
    assert matches.matrix is not None
    np.testing.assert_allclose(matches.matrix / matches.matrix[2, 2], np.eye(3), atol=1e-2)


@pytest.mark.parametrize("model", ["doap-demo-128", "doap-demo-256b"])
@pytest.mark.parametrize(("sequence", "number"), [("graf", 2), ("boat", 2), ("bikes", 4), ("leuven", 6)])
def test_real_photographs_are_matched(oxford: Path, model: str, sequence: str, number: int) -> None:
    folder = oxford / sequence
    storage = cv2.FileStorage(str(folder / f"H1to{number}p.xml"), cv2.FILE_STORAGE_READ)
    homography = np.asarray(storage.getFirstTopLevelNode().mat(), np.float64)
    descriptor = doap.load(model)
    a, b = (doap.detect_and_describe(folder / f"img{k}.png", descriptor) for k in (1, number))
    matches = doap.match(a, b, "homography", threshold=3)
    first, second = matches.verified_points(a, b)
    assert len(first) >= 100
    errors = np.hypot(*(transform_points(first, homography) - second).T)
    assert np.mean(errors < 5) > 0.9
