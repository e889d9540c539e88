"""`doap data download`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar, say
from doap.datasets.download.catalogue import CATALOGUE, DataSet, find
from doap.datasets.download.downloading import download as download_set
from doap.errors import DoapError

EXAMPLE = "Example: doap data download phototour-liberty oxford -o data"


def download(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help=f"Data sets: {', '.join(CATALOGUE)}.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", envvar="DOAP_DATA", help="Folder of data sets; each gets its own in it.")
    ] = Path("data"),
    url: Annotated[
        str | None,
        typer.Option(help="Ask here first: the file or, for sets of several files, their folder. For one NAME."),
    ] = None,
    keep_archive: Annotated[bool, typer.Option(help="Keep what was fetched, in downloads/NAME.")] = False,
) -> None:
    """Get official data sets: fetch, unpack, count, decode and hash them.

    A download that was stopped goes on where it was. A set that is there already is checked again.
    """
    if url and len(names) > 1:
        raise DoapError("--url is for one NAME at a time")
    wanted = [*names, *(other for name in names for other in find(name).brings)]
    failures = []
    for name in dict.fromkeys(wanted):
        try:
            _get(find(name), output, url if name == names[0] else None, keep_archive)
        except DoapError as error:
            failures.append(str(error))
    if failures:
        raise DoapError("; ".join(failures))


def _get(data: DataSet, output: Path, url: str | None, keep_archive: bool) -> None:
    with counting_bar() as bar:
        task = bar.add_task(data.name, total=None)

        def show(step: str, done: int, total: int | None) -> None:
            mebibytes = None if total is None else -(-total >> 20)
            bar.update(task, description=f"{step}, MiB", completed=done >> 20, total=mebibytes)

        found = download_set(data, output, url, keep_archive, progress=show)
    say(f"{data.name} is {'now' if found.fetched else 'already'} in {found.folder}: {found.counts}")
    if data.sha256:
        say(f"  its content is right: sha256:{found.sha256}")
    else:
        say(f"  no hash is known for {data.name}; this copy has sha256:{found.sha256}")
    say(f"  terms: {data.terms}")
