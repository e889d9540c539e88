"""Add the model of a finished run to the shipped weights: the weights, and a card with their provenance.

    python tools/ship.py runs/real doap-128 --photos-csv photos.csv --command "doap train frames-real --data …"

writes src/doap/weights/doap-128.safetensors and .json. photos.csv has the columns archive, file, source and licence.
All its photos are counted. With --data FRAME_SET only the photos of this set are counted, which are named archive/file
there. Paths of the machine are not allowed on the card. `python tools/extents.py` then measures the extents, and
`doap calibrate src/doap/weights/doap-128.safetensors photos/` the ranges of int8.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.photo_sources import PhotoSources, find_sources, read_photo_sources
from doap.errors import DoapError
from doap.files import atomic_file
from doap.networks import registry
from doap.networks.card import Card, DataSource, Origin, read_card, write_card
from doap.networks.registry import load
from doap.training.log import read_validation
from doap.training.recipes.reading import read_recorded_recipe
from doap.training.run_folder import WEIGHTS, is_complete, read_run

LICENCE = "Apache-2.0"
LIMITS = "evaluated on photographs only; not tested on other images, such as medical, thermal or drawn ones"
RUN_NOTES = ("device", "devices", "precision", "threads", "versions")  # keys of run.json that are copied to the card
ABSOLUTE_PATH = re.compile(r"""(^|[\s"'=:,(])(~?/|[A-Za-z]:\\)[\w.~-]""")


def read_photo_names(data: Path, patches: str) -> list[str]:
    """Return the names of the photos that the frame set of a run uses.

    Args:
        data: Folder of the frame set.
        patches: Its description in run.json.
    """
    frame_set = FrameSet.open(data)
    if repr(frame_set) != patches:
        raise DoapError(f"{data}: not the set of the run, which was {patches}")
    return [frame_set.photo_names[photo] for photo in np.unique(frame_set.photos)]


def count_sources(photo_sources: PhotoSources, photos: Sequence[str]) -> list[DataSource]:
    """Count the photos of each source and licence."""
    counts = Counter(find_sources(photo_sources, photos))
    return [DataSource(source=source, licence=licence, photos=n) for (source, licence), n in sorted(counts.items())]


def build_card(run: Path, name: str, sources: PhotoSources, command: str, limits: str, data: Path | None) -> Card:
    """Build the card of a shipped model from the files of its run."""
    info = read_run(run)
    content: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    recipe = read_recorded_recipe(run / "recipe.yaml").model_dump()
    notes = {"command": command, "seed": recipe["seed"], "limits": limits}
    notes |= {key: content[key] for key in RUN_NOTES if key in content}
    notes |= {"validation": Path(info.source.validation).name} if info.source.validation else {}
    if info.teacher:
        teachers = info.teacher if isinstance(info.teacher, list) else [info.teacher]
        names = [_teacher_name(teacher) for teacher in teachers]
        records = [{**teacher, "model": model} for teacher, model in zip(teachers, names, strict=True)]
        is_ensemble = isinstance(info.teacher, list)
        recipe["teacher"], notes["teacher"] = (names, records) if is_ensemble else (names[0], records[0])
    card = read_card(run / WEIGHTS)
    origin = Origin(
        licence=LICENCE,
        data=f"{', '.join(Path(path).name for path in info.source.data)}: {info.patches}",
        training_sets=[
            training_set.model_copy(update={"path": Path(training_set.path).name})
            for training_set in card.origin.training_sets
        ],
        sources=count_sources(sources, read_photo_names(data, info.patches) if data else list(sources)),
        recipe=recipe,
        figures={**card.origin.figures, **_validation_figures(run)},
        notes=notes,
    )
    return card.model_copy(update={"name": name, "origin": origin})


def ship(run: Path, name: str, table: Path, command: str, limits: str = LIMITS, data: Path | None = None) -> Card:
    """Copy the weights of a run to the shipped weights, byte for byte, and write their card.

    Raises:
        DoapError: If the run is unfinished or damaged, the name is invalid, the licence of a photo is unknown, or the
            card would contain a path of this machine.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise DoapError(f"{name}: a name must consist of lower-case letters, digits and single dashes")
    if not is_complete(run):
        raise DoapError(f"{run}: not the folder of a finished run")
    load(run / WEIGHTS, fast=False)  # raises DoapError for damaged weights
    card = build_card(run, name, read_photo_sources(table), command, limits, data)
    for key, text in _iterate_texts(card.model_dump()):
        if ABSOLUTE_PATH.search(text):
            raise DoapError(f"{key}: contains a path of this machine ({text}); use a relative path")
    target = registry.WEIGHTS_FOLDER / f"{name}.safetensors"
    with atomic_file(target) as temporary:
        temporary.write_bytes((run / WEIGHTS).read_bytes())
    write_card(target, card)
    return card


def _teacher_name(teacher: dict[str, str]) -> str:
    """Return the name of the shipped model with the weights of the teacher; otherwise its file name."""
    for name in registry.list_models():
        if read_card(registry.WEIGHTS_FOLDER / f"{name}.safetensors").sha256 == teacher["sha256"]:
            return name
    return Path(teacher["model"]).name


def _validation_figures(run: Path) -> dict[str, float]:
    """Return the AP after the last epoch, if the run had validation."""
    rows = read_validation(run)
    return {"AP % on validation lists": round(100 * rows[-1][1], 2)} if rows else {}


def _iterate_texts(value: object, key: str = "card") -> Iterator[tuple[str, str]]:
    """Yield all texts in nested lists and dictionaries, including keys, each with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield key, str(name)
            yield from _iterate_texts(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _iterate_texts(item, f"{key}.{index}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("name", metavar="NAME", help="name of the shipped model")
    parser.add_argument("--photos-csv", type=Path, required=True, help="source and licence of each photo")
    parser.add_argument("--command", required=True, help="command that trained the model")
    parser.add_argument("--limits", default=LIMITS, help="known limits of the model")
    parser.add_argument("--data", type=Path, help="frame set of the run; only its photos are counted")
    options = parser.parse_args(arguments)
    try:
        card = ship(options.run, options.name, options.photos_csv, options.command, options.limits, options.data)
    except DoapError as error:
        sys.exit(str(error))
    photos = sum(source.photos for source in card.origin.sources)
    print(f"{options.name}: {photos:,} photos of {len(card.origin.sources)} sources; {card.origin.data}")
    print(f"licence: {card.origin.licence_with_photos}")


if __name__ == "__main__":
    main()
