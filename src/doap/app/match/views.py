"""What the browser draws: the data of `<doap-matches>`, which matches.js turns into panels."""

import base64
import html
import io
import json
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.app.match.pair import MethodResult
from doap.app.match.pictures import Picture, jpeg_uri
from doap.app.match.session import MatchSession
from doap.app.methods import label_method
from doap.errors import inflect
from doap.images.extraction import extract_patches
from doap.types import Frames

View = Literal["keypoints", "mutual", "verified", "overlay"]

MAX_LINES = 120  # more would hide the pictures
MAX_CIRCLES = 1500  # per picture
PATCH_PIXELS = 48
PATCHES_PER_ROW = 40


def render_session(session: MatchSession, view: View) -> str:
    """Return the HTML of all methods side by side."""
    data = {
        "view": view,
        "images": [
            {
                "source": jpeg_uri(picture.shown),
                "width": picture.size[1],
                "height": picture.size[0],
                "name": picture.name,
            }
            for picture in session.pictures
        ],
        "panels": [_panel(session, result, view) for result in session.results],
    }
    return f'<doap-matches data-content="{html.escape(json.dumps(data))}"></doap-matches>'


def _panel(session: MatchSession, result: MethodResult, view: View) -> dict[str, Any]:
    matches = result.matches
    milliseconds = sum(result.milliseconds.values())
    panel: dict[str, Any] = {
        "name": label_method(result.method),
        "facts": f"{result.bytes} bytes per descriptor, {milliseconds:,.0f} ms",
        "counts": _counts(result),
        "note": result.note,
        "unit": " bits" if result.is_binary else "",
    }
    if view == "keypoints":
        return panel | {"circles": [_circles(features.frames) for features in (result.first, result.second)]}
    if view == "overlay":
        return panel | _overlay(session.pictures, result)
    chosen = np.flatnonzero(matches.inliers) if view == "verified" else np.arange(len(matches))
    spread = _spread(chosen, result)
    shown = f"{len(spread):,} of {len(chosen):,} shown" if len(spread) < len(chosen) else ""
    return panel | {"shown": shown} | _lines(session.pictures, result, spread)


def _counts(result: MethodResult) -> str:
    matches = result.matches
    keypoints = f"{len(result.first):,} and {len(result.second):,} keypoints"
    mutual = f"{len(matches):,} mutual {inflect(len(matches), 'match', 'matches')}"
    if matches.matrix is None:
        return f"no {matches.geometry} verified; {mutual} of {keypoints}"
    return f"{int(matches.inliers.sum()):,} verified of {mutual}, {keypoints}"


def _spread(chosen: NDArray[np.int64], result: MethodResult) -> NDArray[np.int64]:
    """Choose at most `MAX_LINES` matches, evenly over the height of the first picture."""
    heights = result.first.keypoints[result.matches.indices[chosen, 0], 1]
    ordered = chosen[np.argsort(heights, kind="stable")]
    return ordered[np.linspace(0, len(ordered) - 1, min(MAX_LINES, len(ordered))).astype(np.int64)]


def _lines(pictures: tuple[Picture, Picture], result: MethodResult, chosen: NDArray[np.int64]) -> dict[str, Any]:
    """Return lines with their colours by distance, and the patches at their ends."""
    matches = result.matches
    ends = np.hstack(matches.points(result.first, result.second))[chosen].round(1)
    distances, seconds = matches.distances[chosen], matches.second_distances[chosen]
    digits = 0 if result.is_binary else 3
    low, high = (float(distances.min()), float(distances.max())) if len(distances) else (0.0, 0.0)
    rows = [
        {
            "ends": end,
            "distance": f"{distance:.{digits}f}",
            "second": f"{second:.{digits}f}" if np.isfinite(second) else "none",
            "verified": bool(inlier),
            "colour": colour,
        }
        for end, distance, second, inlier, colour in zip(
            ends.tolist(), distances, seconds, matches.inliers[chosen], _colours(distances, low, high), strict=True
        )
    ]
    return {
        "lines": rows,
        "low": f"{low:.{digits}f}",
        "high": f"{high:.{digits}f}",
        "patches": _patches(pictures, result, chosen) if len(chosen) else None,
        "patch": PATCH_PIXELS,
        "columns": PATCHES_PER_ROW,
    }


def _patches(pictures: tuple[Picture, Picture], result: MethodResult, chosen: NDArray[np.int64]) -> str:
    """Return the patches of matches in one image: rows of those of the first picture, then of the second."""
    sides = []
    for picture, features, indices in zip(
        pictures, (result.first, result.second), result.matches.indices[chosen].T, strict=True
    ):
        frames = _to_shown(features.frames[indices], picture)
        patches = extract_patches(picture.shown, frames, PATCH_PIXELS, result.extent)
        sides.append(_tile(np.asarray(patches)))
    return jpeg_uri(np.vstack(sides), quality=75)


def _tile(patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rows = -(-len(patches) // PATCHES_PER_ROW)
    padded = np.zeros((rows * PATCHES_PER_ROW, PATCH_PIXELS, PATCH_PIXELS), np.uint8)
    padded[: len(patches)] = patches
    grid = padded.reshape(rows, PATCHES_PER_ROW, PATCH_PIXELS, PATCH_PIXELS)
    return np.ascontiguousarray(grid.transpose(0, 2, 1, 3)).reshape(rows * PATCH_PIXELS, PATCHES_PER_ROW * PATCH_PIXELS)


def _to_shown(frames: Frames, picture: Picture) -> Frames:
    """Map frames of a picture to its shown size."""
    scale = np.float32(picture.shown.shape[1] / picture.size[1])
    shown = frames * scale
    shown[:, :, 2] += (scale - 1) / 2
    return np.asarray(shown, np.float32)


def _circles(frames: Frames) -> list[list[float]]:
    """Return centre and radius of the strongest keypoints."""
    strongest = frames[:MAX_CIRCLES]
    scales = np.sqrt(np.abs(np.linalg.det(strongest[:, :, :2].astype(np.float64))))
    rows: list[list[float]] = np.column_stack([strongest[:, :, 2], scales]).round(1).tolist()
    return rows


def _overlay(pictures: tuple[Picture, Picture], result: MethodResult) -> dict[str, Any]:
    """Return the first picture warped onto the second by the homography; a message without one."""
    matches = result.matches
    if matches.geometry != "homography":
        return {"message": "The overlay needs the geometry homography."}
    if matches.matrix is None:
        return {"message": "No homography was verified, so there is nothing to overlay."}
    first, second = pictures
    scales = [np.diag([shown.shape[1] / size[1], shown.shape[0] / size[0], 1.0]) for shown, size in
              ((picture.shown, picture.size) for picture in pictures)]  # fmt: skip
    matrix = scales[1] @ matches.matrix @ np.linalg.inv(scales[0])
    height, width = second.shown.shape
    layers = [
        cv2.warpPerspective(image, matrix, (width, height)) for image in (first.shown, np.full_like(first.shown, 255))
    ]
    buffer = io.BytesIO()
    Image.fromarray(np.dstack(layers).astype(np.uint8), "LA").save(buffer, "WEBP", quality=80)
    return {"warped": f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"}


def _colours(distances: NDArray[np.float64], low: float, high: float) -> list[str]:
    """Return colours from blue, near, over green to red, far."""
    if not len(distances):
        return []
    levels = (20 + 215 * (distances - low) / max(high - low, 1e-9)).astype(np.uint8)
    colours = cv2.applyColorMap(levels[:, None], cv2.COLORMAP_TURBO)[:, 0, ::-1]
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in colours.tolist()]
