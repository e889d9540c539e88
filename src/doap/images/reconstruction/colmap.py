"""Structure from motion with COLMAP (pycolmap): verified matches in, tracks of 3D points out."""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import scales
from doap.images.overlaps import meeting
from doap.images.reconstruction.tracks import PhotoFeatures, PhotoPair, Tracks

if TYPE_CHECKING:
    import pycolmap

MIN_ANGLE = 2.0  # degrees: a point seen from one direction only has no depth to check it by
MAX_ERROR = 2.0  # pixels of reprojection, on average
MIN_PHOTOS = 3
MIN_POINTS = 50
FOCAL = 1.2  # first guess of the focal length in units of the longer side, COLMAP's own


def has_colmap() -> bool:
    """Whether pycolmap is installed."""
    return find_spec("pycolmap") is not None


def structure_tracks(features: list[PhotoFeatures], pairs: list[PhotoPair], seed: int) -> Tracks | None:
    """Reconstruct the scene and keep the points that are surely one point each.

    Points seen by two photos only, seen from directions less than 2 degrees apart, or reprojected worse than
    2 pixels on average are left out.

    Args:
        features: of each photo.
        pairs: their verified matches.
        seed: fixes the reconstruction.

    Returns:
        None where fewer than three photos or 50 points could be placed.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write_database(Path(folder) / "matches.db", features, pairs)
        model = _map(Path(folder), seed)
    return None if model is None else _tracks(model, features)


def _write_database(path: Path, features: list[PhotoFeatures], pairs: list[PhotoPair]) -> None:
    """Photos 0, 1, … become images 1, 2, …; photos of one size are taken for one camera."""
    import pycolmap

    cameras: dict[tuple[int, int], tuple[int, int]] = {}
    with pycolmap.Database.open(path) as database:
        for number, photo in enumerate(features):
            if photo.size not in cameras:
                cameras[photo.size] = _write_camera(database, photo.size)
            camera, rig = cameras[photo.size]
            image = database.write_image(pycolmap.Image(name=str(number), camera_id=camera))
            frame = pycolmap.Frame()
            frame.rig_id = rig
            sensor = pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera)
            frame.add_data_id(pycolmap.data_t(sensor, image))
            database.write_frame(frame)
            # COLMAP counts from the corner of the first pixel, frames from its centre.
            database.write_keypoints(image, photo.frames[:, :, 2] + np.float32(0.5))
        for pair in pairs:
            kind = pycolmap.TwoViewGeometryConfiguration
            geometry = pycolmap.TwoViewGeometry()
            geometry.config = kind.PLANAR_OR_PANORAMIC if pair.flat else kind.UNCALIBRATED
            geometry.inlier_matches = pair.matches.astype(np.uint32)
            database.write_matches(pair.first + 1, pair.second + 1, pair.matches.astype(np.uint32))
            database.write_two_view_geometry(pair.first + 1, pair.second + 1, geometry)


def _write_camera(database: "pycolmap.Database", size: tuple[int, int]) -> tuple[int, int]:
    import pycolmap

    height, width = size
    parameters = [FOCAL * max(size), width / 2, height / 2, 0.0]
    camera = database.write_camera(
        pycolmap.Camera(model="SIMPLE_RADIAL", width=width, height=height, params=parameters)
    )
    rig = pycolmap.Rig()
    rig.add_ref_sensor(pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera))
    return camera, database.write_rig(rig)


def _map(folder: Path, seed: int) -> "pycolmap.Reconstruction | None":
    """The largest model that COLMAP's incremental mapper makes; a second one could hold the same points again."""
    import pycolmap

    pycolmap.logging.minloglevel = pycolmap.logging.Level.FATAL.value
    options = pycolmap.IncrementalPipelineOptions()
    options.extract_colors = False
    options.min_model_size = MIN_PHOTOS
    options.max_num_models = 3
    options.mapper.init_min_num_inliers = 50
    options.mapper.init_min_tri_angle = 8.0
    options.random_seed = options.mapper.random_seed = options.triangulation.random_seed = seed
    options.num_threads = options.mapper.num_threads = 1  # sums in one order, so that a seed fixes the result
    (folder / "models").mkdir()
    models = pycolmap.incremental_mapping(folder / "matches.db", folder, folder / "models", options)
    return max(models.values(), key=lambda model: model.num_reg_images(), default=None)


def _tracks(model: "pycolmap.Reconstruction", features: list[PhotoFeatures]) -> Tracks | None:
    centres = {number: image.projection_center() for number, image in model.images.items() if image.has_pose}
    points: list[int] = []
    photos: list[int] = []
    places: list[int] = []
    angles: list[float] = []
    positions: list[NDArray[np.float64]] = []
    sizes: list[float] = []
    for point in model.points3D.values():
        seen = {element.image_id: element.point2D_idx for element in point.track.elements}
        if len(seen) < MIN_PHOTOS or point.error > MAX_ERROR:
            continue
        rays = np.stack([centres[number] for number in seen]) - point.xyz
        depths = np.linalg.norm(rays, axis=1)
        angle = _widest_angle(rays / depths[:, None])
        if angle < MIN_ANGLE:
            continue
        points += [len(angles)] * len(seen)
        photos += [number - 1 for number in seen]
        places += list(seen.values())
        angles.append(angle)
        positions.append(point.xyz)
        sizes.append(_size_in_space(model, features, seen, depths))
    if len(centres) < MIN_PHOTOS or len(angles) < MIN_POINTS:
        return None
    return Tracks(
        np.array(points, np.int64),
        np.array(photos, np.int64),
        np.array(places, np.int64),
        np.array(angles),
        meeting(np.array(positions), np.array(sizes)),
        "structure",
    )


def _widest_angle(directions: NDArray[np.float64]) -> float:
    """Largest angle in degrees between (k, 3) unit vectors."""
    return float(np.degrees(np.arccos(np.clip((directions @ directions.T).min(), -1, 1))))


def _size_in_space(
    model: "pycolmap.Reconstruction",
    features: list[PhotoFeatures],
    seen: dict[int, int],
    depths: NDArray[np.float64],
) -> float:
    """Radius of the frames of a point in the units of the model: scale · depth / focal length, the median."""
    radii = [
        scales(features[number - 1].frames[place : place + 1])[0]
        * depth
        / model.cameras[model.images[number].camera_id].mean_focal_length()
        for (number, place), depth in zip(seen.items(), depths, strict=True)
    ]
    return float(np.median(radii))
