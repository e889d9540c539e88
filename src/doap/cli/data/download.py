"""`doap data download`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from doap.cli.console import say, step_bar
from doap.errors import DoapError

if TYPE_CHECKING:
    from doap.datasets.download.catalogue import DataSet

EXAMPLE = "Example: doap data download phototour-liberty oxford -o data"


def download(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of data sets, see doap data list.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", envvar="DOAP_DATA", help="Folder of data sets; each is a folder in it.")
    ] = Path("data"),
    url: Annotated[
        str | None,
        typer.Option(help="URL to try first: of the file, or of the folder if a set has several files. One NAME only."),
    ] = None,
    keep_archive: Annotated[bool, typer.Option(help="Keep the downloaded files in downloads/NAME.")] = False,
) -> None:
    """Download official data sets: fetch, unpack, count, decode and hash them.

    An interrupted download is resumed by running the command again. A data set that is there already is checked. The
    hash of the first download is kept in NAME.sha256, and compared.
    """
    from doap.datasets.download.catalogue import find_dataset

    if url and len(names) > 1:
        raise DoapError("--url is for one NAME at a time")
    with_companions = [*names, *(other for name in names for other in find_dataset(name).companions)]
    failures = []
    for name in dict.fromkeys(with_companions):
        try:
            _download(find_dataset(name), output, url if name == names[0] else None, keep_archive)
        except DoapError as error:
            failures.append(str(error))
    if failures:
        raise DoapError("; ".join(failures))


def _download(data: "DataSet", output: Path, url: str | None, keep_archive: bool) -> None:
    from doap.datasets.download.downloading import download as download_dataset

    with step_bar() as show:

        def progress(step: str, done: int, total: int | None) -> None:
            show(f"{step}, MiB", done >> 20, None if total is None else -(-total >> 20))

        result = download_dataset(data, output, url, keep_archive, progress=progress)
    say(f"{data.name} is {'now' if result.is_new else 'already'} in {result.folder}: {result.counts}")
    if data.sha256:
        say(f"  its content is correct: sha256:{result.sha256}")
    elif result.record is None:
        say(f"  no hash is published for {data.name}; this copy has sha256:{result.sha256}")
    elif result.is_recorded_now:
        say(f"  no hash is published for {data.name}; sha256:{result.sha256} is now in {result.record}")
    else:
        say(f"  its content is that of the first download: sha256:{result.sha256} in {result.record}")
    if result.plain_urls:
        hosts = ", ".join(dict.fromkeys(urlsplit(url).netloc for url in result.plain_urls))
        say(f"  it came over plain http, so that others on the way could change it: {hosts}", style="yellow")
    say(f"  terms: {data.terms}")
