"""`doap hloc`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import say, step_bar
from doap.errors import DoapError, inflect

EXAMPLE = "Example: doap hloc features.h5 --matches matches.h5 -o outputs/ --half"


def hloc(
    features: Annotated[Path, typer.Argument(metavar="FEATURES", help="Features that doap describe wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the files of hloc.")],
    matches: Annotated[Path | None, typer.Option(help="Matches of these features that doap match wrote.")] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Write descriptors as float16; keypoints stay float32. Bits are exact.")
    ] = False,
    verified: Annotated[
        bool, typer.Option("--verified", help="Write only matches that agree with the geometry; else all of them.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files in the folder that doap hloc did not write.")
    ] = False,
) -> None:
    """Write features and matches as files of hloc (Hierarchical-Localization).

    The folder gets feats-MODEL.h5 and, with --matches NAME.h5, pairs-NAME.txt and
    feats-MODEL_matches-doap_pairs-NAME.h5: the names that hloc gives its own files. Files that are up to date are kept.
    docs/bridges/hloc.md describes the files.
    """
    from doap.bridges.hloc import check_names, export_features, export_matches, features_name
    from doap.folders import FeatureCollection, MatchCollection

    if verified and matches is None:
        raise DoapError("--verified selects matches; name their file with --matches")
    collection = FeatureCollection(features)
    match_collection = None if matches is None else MatchCollection(matches)
    if match_collection is not None:
        check_names(match_collection.pairs)
    name = features_name(collection[collection.names[0]].model)
    target = output / f"{name}.h5"
    with step_bar() as progress:
        is_new = export_features(
            collection,
            target,
            "float16" if half else "float32",
            force=force,
            progress=lambda done, total: progress("features", done, total),
        )
    _report(target, f"features of {len(collection)} {inflect(len(collection), 'image')}", is_new)
    if match_collection is None:
        return
    pairs = f"pairs-{match_collection.path.stem}"
    kind = "verified" if verified else "doap"
    target = output / f"{name}_matches-{kind}_{pairs}.h5"
    with step_bar() as progress:
        is_new = export_matches(
            match_collection,
            collection,
            target,
            pairs=output / f"{pairs}.txt",
            verified=verified,
            force=force,
            progress=lambda done, total: progress("matches", done, total),
        )
    count = len(match_collection)
    _report(target, f"matches of {count} {inflect(count, 'pair')}", is_new)


def _report(path: Path, content: str, is_new: bool) -> None:
    say(f"{path}: {content}{'' if is_new else ', up to date'}")
