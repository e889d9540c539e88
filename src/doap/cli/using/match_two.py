"""`doap match` for two images."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from doap.choices import FrameShape, Precision
from doap.cli.console import errors, say, step_bar
from doap.cli.options.model import load_model
from doap.errors import DoapError, inflect

if TYPE_CHECKING:
    from doap.features import Features, WideMatches
    from doap.folders import MatchSettings


@dataclass(frozen=True)
class Describing:
    """Options of describing."""

    model: str
    precision: Precision
    frames: FrameShape
    max_keypoints: int
    max_size: int | None
    device: str | None


def match_two(
    paths: tuple[Path, Path],
    describing: Describing,
    settings: "MatchSettings",
    output: Path | None,
    figure: bool,
    json_file: Path | None,
    wide: bool = False,
) -> None:
    """Match two images or their saved features; draw and write the matches, and print their number.

    If `wide`, views of the images are synthesised until they match; see `doap.match_wide`.

    Raises:
        DoapError: If a file cannot be read or written, or would overwrite another one, or a picture is asked for where
            an image is missing.
    """
    from doap.features.drawing import check_picture_format
    from doap.features.report import report_matches
    from doap.features.storage import SUFFIXES
    from doap.files import check_output, write_text

    has_images = all(path.suffix not in SUFFIXES for path in paths)
    if not has_images and output is not None:
        raise DoapError(f"{output}: a picture needs both images, not their features; use --json")
    if wide and not has_images:
        raise DoapError("--wide takes two images, not their features: it synthesises views of them")
    picture = output or Path("matches.png")
    is_drawn = figure and has_images
    _check_overwriting(paths, picture if is_drawn else None, json_file)
    if is_drawn:
        check_picture_format(picture)
    if json_file:
        check_output(json_file)
    steps = None
    if wide:
        wide_matches = _match_wide(paths, describing, settings)
        first, second, matches = wide_matches.first, wide_matches.second, wide_matches.matches
        steps = {"step": wide_matches.step, "tilts": wide_matches.tilts}
    else:
        with errors.status("detecting, describing, matching"):
            first, second = _features(paths, describing)
            matches = settings.match(first, second)
    verified = int(matches.inliers.sum())
    kind = "mutual" if settings.mutual else "nearest"
    if is_drawn:
        details = ", ".join(filter(None, (first.model, settings.geometry)))
        matches.draw(paths[0], paths[1], first, second, picture, f"{matches.count_text(kind)} ({details})")
    if json_file:
        report = report_matches((str(paths[0]), str(paths[1])), first, second, matches) | (steps or {})
        write_text(json_file, json.dumps(report, indent=1) + "\n")
    counts = f"{len(first)} and {len(second)} keypoints"
    ones = f"{kind} {inflect(len(matches), 'one')}"
    if settings.geometry is None:
        say(f"{matches.count_text(kind)}, {counts}")
    elif matches.matrix is None:
        agree = inflect(len(matches), "agrees", "agree")
        say(f"no matches found: {len(matches)} {ones} of {counts} {agree} on no geometry")
    else:
        say(f"{verified} verified {inflect(verified, 'match', 'matches')} of {len(matches)} {ones}, {counts}")
    if wide:
        say(_step_text(wide_matches))
    if is_drawn:
        say(f"drawn in {picture}")


def _check_overwriting(inputs: tuple[Path, Path], picture: Path | None, json_file: Path | None) -> None:
    """Raise a `DoapError` if an output is one of the inputs, or if both outputs are the same file."""
    refusals = {path.resolve(): "overwrite an input" for path in inputs}
    for option, output in (("-o", picture), ("--json", json_file)):
        if output is None:
            continue
        if output.resolve() in refusals:
            raise DoapError(f"{output}: would {refusals[output.resolve()]}; choose another path with {option}")
        refusals[output.resolve()] = "overwrite the picture"


def _match_wide(paths: tuple[Path, Path], describing: Describing, settings: "MatchSettings") -> "WideMatches":
    """Match two images with synthesised views.

    Raises:
        DoapError: If an image has no keypoint, or no geometry is to be verified.
    """
    from doap.features import match_wide
    from doap.networks.descriptor import device_of

    if settings.geometry is None:
        raise DoapError("--wide ends when a geometry is verified; choose a --geometry other than none")
    model = load_model(describing.model, describing.device, describing.precision)
    with step_bar() as progress:
        wide_matches = match_wide(
            *paths,
            model,
            frames=describing.frames,
            max_keypoints=describing.max_keypoints,
            max_size=describing.max_size,
            mutual=settings.mutual,
            ratio=settings.ratio,
            max_distance=settings.max_distance,
            geometry=settings.geometry,
            threshold=settings.threshold,
            cameras=settings.cameras,
            device=device_of(model) or "cpu",
            progress=progress,
        )
    for path, features in zip(paths, (wide_matches.first, wide_matches.second), strict=True):
        _check_keypoints(path, features)
    return wide_matches


def _step_text(wide_matches: "WideMatches") -> str:
    tilts = ", ".join(f"{tilt:.3g}" for tilt in wide_matches.tilts)
    if wide_matches.step is None:
        return f"no step succeeded; synthesised tilts: {tilts}"
    return f"step {wide_matches.step} succeeded" + (f"; synthesised tilts: {tilts}" if tilts else ": plain matching")


def _features(paths: tuple[Path, Path], describing: Describing) -> "list[Features]":
    """Read features, or describe images.

    Raises:
        DoapError: If an image has no keypoint.
    """
    from doap.features import Features, detect_and_describe
    from doap.features.storage import SUFFIXES

    model = None
    features = []
    for path in paths:
        if path.suffix in SUFFIXES:
            features.append(Features.load(path))
            continue
        model = model or load_model(describing.model, describing.device, describing.precision)
        described = detect_and_describe(
            path,
            model,
            frames=describing.frames,
            max_keypoints=describing.max_keypoints,
            max_size=describing.max_size,
        )
        _check_keypoints(path, described)
        features.append(described)
    return features


def _check_keypoints(path: Path, features: "Features") -> None:
    if not len(features):
        height, width = features.size
        raise DoapError(f"{path}: no keypoint found in {width}x{height} pixels; is it flat or tiny?")
