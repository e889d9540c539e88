"""Matches of the page as folders of COLMAP and of hloc."""

import re
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from PIL.ExifTags import IFD, Base

from doap.app.match.pair import LONGEST_SIDE, MethodResult
from doap.app.match.session import MatchSession
from doap.bridges.colmap import CameraSettings
from doap.bridges.colmap.database import create_database, open_database, pair_id
from doap.bridges.colmap.filling import add_images
from doap.bridges.colmap.two_view import DEGENERATE, PIXEL_CENTRE, PLANAR_OR_PANORAMIC, UNCALIBRATED, TwoViewGeometry
from doap.bridges.hloc import export_features, export_matches
from doap.errors import DoapError
from doap.features import Matches
from doap.folders import FeatureCollection, MatchSettings, NamedImage
from doap.folders.feature_store import FeatureFolder
from doap.folders.match_store import MatchStore
from doap.folders.matching import pair_stamps
from doap.folders.settings import DescribeSettings, Identity
from doap.images.reading import ORIENTATION, open_image

STAMP = "doap app"
QUALITY = 95  # of turned JPEG and WebP pictures
CAMERA_TAGS = (Base.ImageDescription, Base.Make, Base.Model, Base.Software, Base.DateTime, Base.Artist, Base.Copyright)


def write_colmap_folder(session: MatchSession, result: MethodResult, folder: Path) -> None:
    """Write `images/` and `database.db` with keypoints, matches and their geometry, for COLMAP's mapper.

    Raises:
        DoapError: If the pictures are no longer on the server.
    """
    names = _image_names(session)
    images = [NamedImage(name, folder / "images" / name) for name in names]
    for picture, image in zip(session.pictures, images, strict=True):
        _copy(picture.path, image.path)
    path = folder / "database.db"
    create_database(path, _identity(session, result))
    with open_database(path) as database:
        add_images(database, images, CameraSettings())
        stored = database.images()
        first, second = (stored[name].number for name in names)
        with database.transaction():
            database.write_keypoints(first, result.first.frames, STAMP)
            database.write_keypoints(second, result.second.frames, STAMP)
            database.write_pair(pair_id(first, second), result.matches.indices, _geometry(result.matches))


def write_hloc_folder(session: MatchSession, result: MethodResult, folder: Path) -> None:
    """Write hloc's feature file, match file and list of pairs, named as `doap hloc` names them.

    Spaces in names of pictures become "_", because hloc splits names at them.
    """
    names = _image_names(session, space="_")
    model = "feats-" + re.sub(r"[/\\]", "-", result.first.model)
    options = session.options
    settings = MatchSettings(True, options.ratio, None, options.geometry, options.threshold, None)
    with tempfile.TemporaryDirectory(prefix="doap-app-") as temporary:
        features = FeatureFolder(Path(temporary) / "features")
        features.open(_identity(session, result), force=False)
        for name, one in zip(names, (result.first, result.second), strict=True):
            features.save(name, {**one.to_record(), "stamp": STAMP})
        collection = FeatureCollection(features.folder)
        matches = MatchStore(Path(temporary) / "matches.h5")
        matches.open(settings.identity(), force=False)
        (stamp,) = pair_stamps([names], collection, settings.identity()).values()
        matches.save(
            [names], [{**result.matches.to_record(), "stamp": stamp, "verified": int(result.matches.inliers.sum())}]
        )
        matches.finish()
        export_features(collection, folder / f"{model}.h5")
        target = folder / f"{model}_matches-doap_pairs-matches.h5"
        export_matches(matches.target, collection, target, pairs=folder / "pairs-matches.txt")


def _image_names(session: MatchSession, space: str = " ") -> tuple[str, str]:
    """Return different names of the two pictures, with `space` in place of spaces."""
    first, second = (re.sub(r"\s", space, picture.path.name) for picture in session.pictures)
    return (first, second) if first != second else (f"first-{first}", f"second-{second}")


def _copy(source: Path, target: Path) -> None:
    """Copy a picture; one that EXIF data turn is written upright, because COLMAP reads pixels as they are stored."""
    target.parent.mkdir(exist_ok=True)
    if not source.is_file():
        raise DoapError(f"{source.name}: is no longer on the server; choose the picture again")
    with open_image(source, source.name) as image:
        exif = image.getexif()
        if exif.get(ORIENTATION, 1) == 1:
            shutil.copyfile(source, target)
            return
        if image.format == "TIFF":
            # Pillow writes no EXIF data into compressed TIFF files; the archive of the download is compressed.
            options: dict[str, Any] = {"exif": _camera_exif(exif).tobytes(), "compression": "raw"}
            upright = ImageOps.exif_transpose(image)
        else:
            upright = ImageOps.exif_transpose(image)
            options = {"exif": upright.getexif(), "quality": QUALITY}
        upright.save(target, image.format, **options)


def _camera_exif(exif: Image.Exif) -> Image.Exif:
    """Return the EXIF data of a TIFF picture that has not been decoded, without the tags that describe its pixels."""
    camera = Image.Exif()
    camera.update({tag: exif[tag] for tag in CAMERA_TAGS if tag in exif})
    for ifd in (IFD.Exif, IFD.GPSInfo):
        values = {tag: value for tag, value in exif.get_ifd(ifd).items() if tag != IFD.Interop}  # a place in the file
        if values:
            camera.get_ifd(ifd).update(values)
    return camera


def _identity(session: MatchSession, result: MethodResult) -> Identity:
    settings = DescribeSettings(result.first.model, max_keypoints=session.options.keypoints, max_size=LONGEST_SIDE)
    return dict(asdict(settings))


def _geometry(matches: Matches) -> TwoViewGeometry:
    """Return the geometry in the coordinates of COLMAP, whose pixels have their centres at 0.5."""
    if matches.matrix is None:
        return TwoViewGeometry(DEGENERATE, matches.inliers)
    shift = np.eye(3)
    shift[:2, 2] = PIXEL_CENTRE
    back = np.linalg.inv(shift)
    if matches.geometry == "homography":
        return TwoViewGeometry(PLANAR_OR_PANORAMIC, matches.inliers, homography=shift @ matches.matrix @ back)
    return TwoViewGeometry(UNCALIBRATED, matches.inliers, fundamental=back.T @ matches.matrix @ back)
