"""Makes a shipped model of a finished run: its weights and a card that says where they come from.

    python tools/ship.py runs/real doap-128 --photos-csv photos.csv --command "doap train frames-real --data …"

writes src/doap/weights/doap-128.safetensors and .json. photos.csv has the columns archive, file, source and licence;
all its photos are counted or, given the frame set with --data, those of the set, which are called archive/file there.
No path of a machine stands on the card. `python tools/extents.py` then finds the extents.
"""

import argparse
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from doap.datasets.sets.frame_set import FrameSet
from doap.errors import DoapError
from doap.files import atomic_file
from doap.networks import registry
from doap.networks.registry import load
from doap.networks.card import Card, DataSource, Origin, read_card, write_card
from doap.training.log import read_validation
from doap.training.recipe import read_recorded_recipe
from doap.training.run_folder import WEIGHTS, is_complete, read_run

LICENCE = "Apache-2.0"
LIMITS = "judged on photographs alone: on other pictures, such as medical, thermal or drawn ones, it was not tried"
COLUMNS = ("archive", "file", "source", "licence")
KEPT = ("device", "devices", "precision", "threads", "versions")  # of run.json
PATH = re.compile(r"""(^|[\s"'=:,(])(~?/|[A-Za-z]:\\)[\w.~-]""")
Known = dict[str, tuple[str, str]]  # source and licence of each photo


def read_sources(table: Path) -> Known:
    """Source and licence of each photo, by archive/file."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DoapError(f"{table}: cannot be read as a table ({error})") from error
    if not rows or not set(COLUMNS) <= set(rows[0]) or not all(row[column] for row in rows for column in COLUMNS):
        raise DoapError(f"{table}: must have the columns {', '.join(COLUMNS)}, and a value of each in every row")
    return {f"{row['archive']}/{row['file']}": (row["source"], row["licence"]) for row in rows}


def photos_of(data: Path, patches: str) -> list[str]:
    """Names of the photos that the set of a run shows.

    Args:
        data: where the set lies now.
        patches: what run.json says of it.
    """
    found = FrameSet.open(data)
    if repr(found) != patches:
        raise DoapError(f"{data}: not the set of the run, which was {patches}")
    return [found.photo_names[photo] for photo in np.unique(found.photos)]


def count_sources(known: Known, photos: Sequence[str]) -> list[DataSource]:
    """How many photos each source gave under each licence."""
    unknown = [photo for photo in photos if photo not in known]
    if unknown:
        raise DoapError(f"{unknown[0]}: the first of {len(unknown)} photos of the set that the table does not know")
    counts = Counter(known[photo] for photo in photos)
    return [DataSource(source=s, licence=licence, photos=n) for (s, licence), n in sorted(counts.items())]


def card_of(run: Path, name: str, known: Known, command: str, limits: str, data: Path | None) -> Card:
    """What the card of a shipped run says."""
    source = read_run(run).source
    about: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    recipe = read_recorded_recipe(run / "recipe.yaml").model_dump()
    notes = {"command": command, "seed": recipe["seed"], "limits": limits}
    notes |= {key: about[key] for key in KEPT if key in about}
    notes |= {"validation": Path(source.validation).name} if source.validation else {}
    if about.get("teacher"):
        recipe["teacher"] = _teacher(about["teacher"])
        notes["teacher"] = {**about["teacher"], "model": recipe["teacher"]}
    card = read_card(run / WEIGHTS)
    origin = Origin(
        licence=LICENCE,
        data=f"{Path(source.data).name}: {about['patches']}",
        sources=count_sources(known, photos_of(data, about["patches"]) if data else list(known)),
        recipe=recipe,
        figures={**card.origin.figures, **_judged(run)},
        notes=notes,
    )
    return card.model_copy(update={"name": name, "origin": origin})


def ship(run: Path, name: str, table: Path, command: str, limits: str = LIMITS, data: Path | None = None) -> Card:
    """Write the weights of a run and their card among those that ship; the weights are the run's, byte for byte.

    Raises:
        DoapError: one line, for a run that is not finished or damaged, a name that cannot be, a photo whose licence
            nobody knows, or a path that would stand on the card.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise DoapError(f"{name}: names are of small letters, digits and single dashes")
    if not is_complete(run):
        raise DoapError(f"{run}: not the folder of a finished run")
    load(run / WEIGHTS)  # refuses what is damaged
    card = card_of(run, name, read_sources(table), command, limits, data)
    for where, text in _texts(card.model_dump()):
        if PATH.search(text):
            raise DoapError(f"{where}: a path of this machine would stand on the card: {text}")
    target = registry.WEIGHTS_FOLDER / f"{name}.safetensors"
    with atomic_file(target) as temporary:
        temporary.write_bytes((run / WEIGHTS).read_bytes())
    write_card(target, card)
    return card


def _teacher(about: dict[str, str]) -> str:
    """The shipped model that has these weights; otherwise the last name of its path."""
    for name in registry.list_models():
        if read_card(registry.WEIGHTS_FOLDER / f"{name}.safetensors").sha256 == about["sha256"]:
            return name
    return Path(about["model"]).name


def _judged(run: Path) -> dict[str, float]:
    """The AP after the last epoch, if the run was validated."""
    validated = read_validation(run)
    return {"AP % on held-out lists": round(100 * validated[-1][1], 2)} if validated else {}


def _texts(value: object, where: str = "card") -> Iterator[tuple[str, str]]:
    """Every text in nested lists and dictionaries, keys too, and where it stands."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield where, str(key)
            yield from _texts(each, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _texts(each, f"{where}.{number}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument("name", metavar="NAME", help="of the shipped model")
    parser.add_argument("--photos-csv", type=Path, required=True, help="where the photos come from")
    parser.add_argument("--command", required=True, help="that trained it")
    parser.add_argument("--limits", default=LIMITS, help="what it is not made for")
    parser.add_argument("--data", type=Path, help="the frame set of the run, to count its photos alone")
    given = parser.parse_args(arguments)
    try:
        card = ship(given.run, given.name, given.photos_csv, given.command, given.limits, given.data)
    except DoapError as error:
        sys.exit(str(error))
    photos = sum(source.photos for source in card.origin.sources)
    print(f"{given.name}: {photos:,} photos of {len(card.origin.sources)} sources; {card.origin.data}")


if __name__ == "__main__":
    main()
