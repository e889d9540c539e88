"""hloc itself, for tests: it is not on PyPI, but another package there carries a copy of its code."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CARRIER = "deep_image_matching==1.2.4"
LOGGER = '\nlogger = logging.getLogger("hloc")\n'  # the copy lacks it, though its modules import it


def install_hloc(folder: Path) -> Path:
    """Install hloc to a folder and return the folder to put on the path; skip the test if it cannot be downloaded."""
    site, package = folder / "site", folder / "path" / "hloc"
    options = ("--no-deps", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), CARRIER]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        pytest.skip(f"hloc cannot be downloaded: {(result.stderr.strip() or 'pip failed').splitlines()[-1]}")
    shutil.copytree(site / "deep_image_matching" / "thirdparty" / "hloc", package)
    with (package / "__init__.py").open("a") as file:
        file.write(LOGGER)
    return package.parent
