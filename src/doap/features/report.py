"""Matches of two images as plain values for JSON: points, distances and geometry."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doap.features.features import Features
    from doap.features.matches import Matches


def report_matches(
    names: tuple[str, str], first: "Features", second: "Features", matches: "Matches"
) -> dict[str, object]:
    """Return the names of two images, their matches and the geometry; infinite distances become None."""
    geometry = matches.geometry or "none"
    points = [side.tolist() for side in matches.points(first, second)]
    columns = matches.distances.tolist(), matches.second_distances.tolist(), matches.inliers.tolist()
    matrices = {"matrix": matches.matrix, "rotation": matches.rotation, "translation": matches.translation}
    is_posed, is_verified = geometry == "essential", geometry != "none"
    return {
        "images": list(names),
        "model": first.model,
        "keypoints": [len(first), len(second)],
        "geometry": geometry,
        **{
            name: None if value is None else value.tolist()
            for name, value in matrices.items()
            if name == "matrix" or is_posed
        },
        "verified": int(matches.inliers.sum()) if is_verified else None,
        "matches": [
            {
                "a": a,
                "b": b,
                "distance": distance,
                "second_distance": second_distance if math.isfinite(second_distance) else None,
                "verified": inlier if is_verified else None,
            }
            for a, b, distance, second_distance, inlier in zip(*points, *columns, strict=True)
        ],
    }
