"""Steps that fill a COLMAP database; each continues where an interrupted one stopped."""

from collections.abc import Mapping, Sequence

from doap.bridges.colmap.cameras import CameraSettings, new_camera, read_image_camera, sharing_key
from doap.bridges.colmap.database import Database, StoredImage, pair_id, pair_images, pair_intrinsics
from doap.bridges.colmap.two_view import MatchTask, Pair, RotationTask, match_task, rotation_task
from doap.bridges.colmap.view_graph import ImagePair, low_shares, weak_pairs
from doap.errors import DoapError
from doap.folders import FeatureCollection, MatchSettings, NamedImage
from doap.folders import Pair as Names
from doap.folders.matching import MAX_TASK, TASKS_PER_WORKER
from doap.folders.pairs import in_blocks
from doap.geometry.robust import Matrix
from doap.parallel import Engine
from doap.types import Progress

IMAGES_PER_TRANSACTION = 64


def add_images(database: Database, images: Sequence[NamedImage], settings: CameraSettings) -> None:
    """Add the images that are not in a database, with their cameras, in one transaction."""
    stored = database.images()
    if all(image.name in stored for image in images):
        return
    cameras: dict[tuple[object, ...], int] = {}
    with database.transaction():
        for image in sorted(images, key=lambda image: image.name not in stored):  # those in the database first
            source = read_image_camera(image.path)
            key = sharing_key(image.name, source, settings.mode)
            if image.name in stored:
                cameras.setdefault(key, stored[image.name].camera)
                continue
            if key not in cameras:
                cameras[key] = database.add_camera(new_camera(source, settings))
            database.add_image(image.name, cameras[key])


def check_sizes(database: Database, images: Sequence[NamedImage]) -> None:
    """Check that images of a database have the sizes of their cameras.

    Raises:
        DoapError: If one has not.
    """
    stored, cameras = database.images(), database.cameras()
    for image in images:
        camera = cameras.get(stored[image.name].camera)
        width, height = read_image_camera(image.path).size
        if camera is None or (camera.width, camera.height) != (width, height):
            expected = "no camera" if camera is None else f"a camera of {camera.width}x{camera.height} pixels"
            raise DoapError(
                f"{image.path}: has {width}x{height} pixels, but {expected} in the database; "
                "restore the image that was imported, or make a new database"
            )


def write_features(
    database: Database, collection: FeatureCollection, images: Mapping[str, StoredImage], progress: Progress
) -> None:
    """Write the keypoints of images that have none, or those of older features."""
    stamps = database.stamps()
    names = [name for name, image in images.items() if stamps.get(image.number) != collection.stamps[name]]
    progress(0, len(names))
    for start in range(0, len(names), IMAGES_PER_TRANSACTION):
        chunk = names[start : start + IMAGES_PER_TRANSACTION]
        with database.transaction():
            database.remove_features([images[name].number for name in chunk])
            for name in chunk:
                database.write_keypoints(images[name].number, collection[name].frames, collection.stamps[name])
        progress(start + len(chunk), len(names))


def match_images(
    database: Database,
    collection: FeatureCollection,
    images: Mapping[str, StoredImage],
    pairs: Sequence[Names],
    settings: MatchSettings,
    max_error: float,
    device: str,
    pool: Engine,
    progress: Progress,
) -> tuple[list[int], int]:
    """Match and verify the pairs that are not in a database, some per transaction.

    Returns:
        Numbers of all pairs, and how many were matched now.
    """
    # COLMAP stores a pair with the smaller number first; matches of the other order can differ by the ratio test.
    numbers = {name: image.number for name, image in images.items()}
    ordered = [(a, b) if numbers[a] < numbers[b] else (b, a) for a, b in pairs]
    wanted = {pair_id(numbers[a], numbers[b]): (a, b) for a, b in ordered}
    finished = database.matched()
    remaining = in_blocks(names for number, names in wanted.items() if number not in finished)
    cameras = database.cameras()
    size = min(MAX_TASK, max(1, len(remaining) // (TASKS_PER_WORKER * pool.workers)))
    chunks = [remaining[start : start + size] for start in range(0, len(remaining), size)]

    def task(chunk: list[Names]) -> MatchTask:
        stamps = {name: collection.stamps[name] for names in chunk for name in names}
        members = tuple(Pair(names, pair_intrinsics(cameras, *(images[name] for name in names))) for names in chunk)
        return MatchTask(collection.path.absolute(), members, stamps, settings, max_error, device)

    done = 0
    progress(0, len(remaining))
    for chunk, results in zip(chunks, pool.map(match_task, map(task, chunks)), strict=True):
        with database.transaction():
            for (first, second), (matches, geometry) in zip(chunk, results, strict=True):
                database.write_pair(pair_id(numbers[first], numbers[second]), matches, geometry)
        done += len(chunk)
        progress(done, len(remaining))
    return list(wanted), len(remaining)


def hide_weak_pairs(
    database: Database, images: Mapping[str, StoredImage], min_share: float, pool: Engine, progress: Progress
) -> int:
    """Hide the geometries of weak pairs among the images that doap has matched, and of no others; see `weak_pairs`.

    The geometries can be restored, and the matches stay. The result does not depend on what was hidden before.

    Returns:
        Number of weak pairs.
    """
    numbers = {image.number: image for image in images.values()}
    with database.transaction():
        database.restore_geometries()
        counts = database.verified_counts()
        own = {pair_images(pair): counts[pair] for pair in database.matched() if numbers.keys() >= {*pair_images(pair)}}
        rotations = _find_rotations(database, numbers, own, pool, progress) if low_shares(own, min_share) else {}
        weak = weak_pairs(own, rotations, min_share)
        database.hide_geometries([pair_id(*pair) for pair in sorted(weak)])
    return len(weak)


def _find_rotations(
    database: Database,
    images: Mapping[int, StoredImage],
    counts: Mapping[ImagePair, int],
    pool: Engine,
    progress: Progress,
) -> dict[ImagePair, Matrix]:
    """Return the rotations of pairs with verified matches, by focal lengths that are known or assumed."""
    cameras = database.cameras()
    pairs = [pair for pair in sorted(counts) if counts[pair]]

    def task(pair: ImagePair) -> RotationTask | None:
        first, second = (images[image] for image in pair)
        intrinsics = pair_intrinsics(cameras, first, second, assumed=True)
        if intrinsics is None:
            return None
        camera = cameras[second.camera]
        return RotationTask(*database.verified_points(pair_id(*pair)), (camera.height, camera.width), intrinsics)

    progress(0, len(pairs))
    rotations = {}
    for done, (pair, rotation) in enumerate(zip(pairs, pool.map(rotation_task, map(task, pairs)), strict=True), 1):
        if rotation is not None:
            rotations[pair] = rotation
        progress(done, len(pairs))
    return rotations
