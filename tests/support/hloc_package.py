"""hloc itself, for tests: it is not on PyPI, but another package there carries a copy of its code."""

import shutil
from pathlib import Path

from support.packages import install

CARRIER = "deep_image_matching==1.2.4"
LOGGER = '\nlogger = logging.getLogger("hloc")\n'  # the copy lacks it, though its modules import it


def install_hloc(folder: Path) -> Path:
    """Install hloc to a folder and return the folder to put on the path; skip the test if it cannot be downloaded."""
    site, package = install(folder / "site", CARRIER), folder / "path" / "hloc"
    shutil.copytree(site / "deep_image_matching" / "thirdparty" / "hloc", package)
    with (package / "__init__.py").open("a") as file:
        file.write(LOGGER)
    return package.parent
