"""Packages in other versions than the installed ones, for tests."""

import subprocess
import sys
from pathlib import Path

import pytest


def install(folder: Path, *requirements: str) -> Path:
    """Install packages without their dependencies to a folder and return it; skip the test if pip cannot."""
    options = ("--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1", "--timeout", "20")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), *requirements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or "pip failed").splitlines()[-1]
        pytest.skip(f"cannot install {' and '.join(requirements)}: {reason}")
    return folder
