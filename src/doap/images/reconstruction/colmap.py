"""Structure from motion with COLMAP (pycolmap): from verified matches to tracks of 3D points."""

import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import scales
from doap.images.reconstruction.overlaps import find_intersecting_balls
from doap.images.reconstruction.photo_features import PhotoFeatures
from doap.images.reconstruction.tracks import PhotoPair, Tracks

if TYPE_CHECKING:
    import pycolmap

MIN_ANGLE = 2.0  # degrees: the depth of a point seen from one direction cannot be checked
MAX_ERROR = 2.0  # pixels: mean reprojection error
MIN_PHOTOS = 3
MIN_POINTS = 50
INITIAL_FOCAL = 1.2  # in units of the longer side, as COLMAP's default


def has_colmap() -> bool:
    """Return whether pycolmap is installed."""
    return find_spec("pycolmap") is not None


def reconstruct_tracks(features: Sequence[PhotoFeatures], pairs: Sequence[PhotoPair], seed: int) -> Tracks | None:
    """Reconstruct the scene and return the tracks of its reliable points.

    Points seen in two photos only, with viewing directions that differ by less than 2 degrees, or with a mean
    reprojection error above 2 pixels are dropped.

    Args:
        features: Features of every photo.
        pairs: Verified matches.
        seed: Seed of the reconstruction.

    Returns:
        None if fewer than three photos or 50 points are reconstructed.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write_database(Path(folder) / "matches.db", features, pairs)
        model = _map(Path(folder), seed)
    return None if model is None else _select_tracks(model, features)


def _write_database(path: Path, features: Sequence[PhotoFeatures], pairs: Sequence[PhotoPair]) -> None:
    """Write a COLMAP database: photos 0, 1, … are images 1, 2, …, and photos of equal size share a camera."""
    import pycolmap

    cameras: dict[tuple[int, int], tuple[int, int]] = {}
    with pycolmap.Database.open(path) as database:
        for index, photo in enumerate(features):
            if photo.size not in cameras:
                cameras[photo.size] = _write_camera(database, photo.size)
            camera, rig = cameras[photo.size]
            image = database.write_image(pycolmap.Image(name=str(index), camera_id=camera))
            frame = pycolmap.Frame()
            frame.rig_id = rig
            sensor = pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera)
            frame.add_data_id(pycolmap.data_t(sensor, image))
            database.write_frame(frame)
            # The origin of COLMAP is the corner of the first pixel, that of frames its centre.
            database.write_keypoints(image, photo.frames[:, :, 2] + np.float32(0.5))
        for pair in pairs:
            configuration = pycolmap.TwoViewGeometryConfiguration
            geometry = pycolmap.TwoViewGeometry()
            geometry.config = configuration.PLANAR_OR_PANORAMIC if pair.is_planar else configuration.UNCALIBRATED
            geometry.inlier_matches = pair.matches.astype(np.uint32)
            database.write_matches(pair.first + 1, pair.second + 1, pair.matches.astype(np.uint32))
            database.write_two_view_geometry(pair.first + 1, pair.second + 1, geometry)


def _write_camera(database: "pycolmap.Database", size: tuple[int, int]) -> tuple[int, int]:
    import pycolmap

    height, width = size
    parameters = [INITIAL_FOCAL * max(size), width / 2, height / 2, 0.0]
    camera = database.write_camera(
        pycolmap.Camera(model="SIMPLE_RADIAL", width=width, height=height, params=parameters)
    )
    rig = pycolmap.Rig()
    rig.add_ref_sensor(pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera))
    return camera, database.write_rig(rig)


def _map(folder: Path, seed: int) -> "pycolmap.Reconstruction | None":
    """Run COLMAP's incremental mapper and return the largest model; others could contain the same points again."""
    import pycolmap

    pycolmap.logging.minloglevel = pycolmap.logging.Level.FATAL.value
    options = pycolmap.IncrementalPipelineOptions()
    options.extract_colors = False
    options.min_model_size = MIN_PHOTOS
    options.max_num_models = 3
    options.mapper.init_min_num_inliers = 50
    options.mapper.init_min_tri_angle = 8.0
    options.random_seed = options.mapper.random_seed = options.triangulation.random_seed = seed
    options.num_threads = options.mapper.num_threads = 1  # a fixed order of summation makes the result reproducible
    (folder / "models").mkdir()
    models = pycolmap.incremental_mapping(folder / "matches.db", folder, folder / "models", options)
    return max(models.values(), key=lambda model: model.num_reg_images(), default=None)


def _select_tracks(model: "pycolmap.Reconstruction", features: Sequence[PhotoFeatures]) -> Tracks | None:
    centres = {image_id: image.projection_center() for image_id, image in model.images.items() if image.has_pose}
    points: list[int] = []
    photos: list[int] = []
    feature_indices: list[int] = []
    angles: list[float] = []
    positions: list[NDArray[np.float64]] = []
    radii: list[float] = []
    for point in model.points3D.values():
        observations = {element.image_id: element.point2D_idx for element in point.track.elements}
        if len(observations) < MIN_PHOTOS or point.error > MAX_ERROR:
            continue
        rays = np.stack([centres[image_id] for image_id in observations]) - point.xyz
        depths = np.linalg.norm(rays, axis=1)
        angle = _widest_angle(rays / depths[:, None])
        if angle < MIN_ANGLE:
            continue
        points += [len(angles)] * len(observations)
        photos += [image_id - 1 for image_id in observations]
        feature_indices += list(observations.values())
        angles.append(angle)
        positions.append(point.xyz)
        radii.append(_radius_in_space(model, features, observations, depths))
    if len(centres) < MIN_PHOTOS or len(angles) < MIN_POINTS:
        return None
    return Tracks(
        np.array(points, np.int64),
        np.array(photos, np.int64),
        np.array(feature_indices, np.int64),
        np.array(angles),
        find_intersecting_balls(np.array(positions), np.array(radii)),
        "structure",
    )


def _widest_angle(directions: NDArray[np.float64]) -> float:
    """Return the largest angle in degrees between (k, 3) unit vectors."""
    return float(np.degrees(np.arccos(np.clip((directions @ directions.T).min(), -1, 1))))


def _radius_in_space(
    model: "pycolmap.Reconstruction",
    features: Sequence[PhotoFeatures],
    observations: dict[int, int],
    depths: NDArray[np.float64],
) -> float:
    """Return the median radius of a point's frames in units of the model: scale · depth / focal length."""
    radii = [
        scales(features[image_id - 1].frames[index : index + 1])[0]
        * depth
        / model.cameras[model.images[image_id].camera_id].mean_focal_length()
        for (image_id, index), depth in zip(observations.items(), depths, strict=True)
    ]
    return float(np.median(radii))
