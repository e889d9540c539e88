"""The Makefile: which tests are run."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def dry_run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Print what make would run; what the make that runs this test was asked for has no effect."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [
        (("test",), '-m "not slow"'),
        (("test", "TESTS=fast"), '-m "not slow"'),
        (("test", "TESTS=slow"), "-m slow"),
        (("test", "TESTS=all"), ""),
        (("test-slow",), "-m slow"),
    ],
)
def test_tests_are_selected(arguments: tuple[str, ...], selection: str) -> None:
    shown = dry_run(*arguments)
    assert shown.returncode == 0
    assert shown.stdout.rstrip().endswith(f"--dist worksteal {selection}".rstrip())


@pytest.mark.parametrize("selection", ["other", "", "fast slow"])
def test_an_unknown_selection_of_tests_is_one_line(selection: str) -> None:
    shown = dry_run("test", f"TESTS={selection}")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.endswith(f"*** TESTS={selection}: must be fast, slow or all.  Stop.\n")
    assert shown.stderr.count("\n") == 1
