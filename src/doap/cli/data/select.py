"""`doap data select`: the part of a frame set whose photos have chosen licences."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from doap.cli.console import console, say
from doap.cli.opening import open_with_bar

EXAMPLE = 'Example: doap data select sets/photos --photos-csv photos.csv --licence "CC*" --licence "*BSD*" -o sets/open'


def select(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A frame set.")],
    photos_csv: Annotated[
        Path,
        typer.Option(help="Licences of the photos: columns archive, file, source, licence; the photo is archive/file."),
    ],
    licence: Annotated[list[str], typer.Option(metavar="PATTERN", help='Licences to keep, such as "CC*"; repeatable.')],
    output: Annotated[Path, typer.Option("-o", "--output", help="The set to create, a folder.")],
) -> None:
    """Write the part of a frame set whose photos have one of some licences.

    Licences are compared with patterns, in which * stands for any text; capital letters matter. A group that lies
    partly in other photos is left out.
    """
    from collections import Counter

    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.sets.photo_sources import find_sources, is_chosen, read_photo_sources, select_licences
    from doap.errors import DoapError

    data = open_with_bar(path)
    if not isinstance(data, FrameSet):
        raise DoapError(f"{path}: not a frame set; build one with doap data build --frames")
    photo_sources = read_photo_sources(photos_csv)
    selected = select_licences(data, photo_sources, licence)
    selected.save(output)
    table = Table("licence", "photos", "kept", header_style="bold")
    for text, count in Counter(item.licence for item in find_sources(photo_sources, data.photo_names)).most_common():
        table.add_row(text, f"{count:,}", "yes" if is_chosen(text, licence) else "no")
    console.print(table)
    say(f"{output}: {selected}")
