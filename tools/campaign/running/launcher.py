"""Run the command line of doap; with DOAP_CAMPAIGN_URL, against a small copy of a data set on a local server."""

import os
from dataclasses import replace

from doap.cli.main import main
from doap.training import trainer


def serve_small_copy(url: str) -> None:
    """Enter the small copy of Phototour in the catalogue."""
    from doap.datasets.download.catalogue import CATALOGUE

    data = CATALOGUE["phototour-liberty"]
    files = (replace(data.files[0], urls=(url,)),)
    expected = {"patches": 300, "pairs": 40}
    CATALOGUE["phototour-liberty"] = replace(data, files=files, expected=expected, size=10_000_000, sha256=None)


def adapt() -> None:
    """Prepare doap for tiny commands."""
    trainer.CHECKPOINT_SECONDS = 0.05  # a tiny training takes seconds
    if "DOAP_CAMPAIGN_URL" in os.environ:
        serve_small_copy(os.environ["DOAP_CAMPAIGN_URL"])


if __name__ == "__main__":
    adapt()
    main()
