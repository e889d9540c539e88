from pathlib import Path

import numpy as np

import doap
from doap.types import Grey
from support.small_models import untrained


def test_features_are_saved_for_others_to_read(photo: Grey, tmp_path: Path) -> None:
    features = doap.detect_and_describe(photo, untrained(), 60)
    features.save(tmp_path / "camera.npz")
    with np.load(tmp_path / "camera.npz", allow_pickle=False) as archive:
        assert set(archive) == {"frames", "keypoints", "descriptors", "size", "model"}
        np.testing.assert_array_equal(archive["keypoints"], features.frames[:, :, 2])
        np.testing.assert_array_equal(archive["descriptors"], features.descriptors)
        assert archive["size"].tolist() == [512, 512]
        assert str(archive["model"]) == "test"
