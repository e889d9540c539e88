"""Environments in which the wheel is installed, and nothing of the repository can be imported."""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from support.example_scripts import EXAMPLES

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment without pip, whose programs come first on the path of its commands."""

    folder: Path

    @property
    def site_packages(self) -> Path:
        """Folder of the installed packages."""
        return next(self.folder.glob("lib/python*/site-packages"))

    def run(self, *command: object, cwd: Path, timeout: float = 300) -> str:
        """Run a command and return what it prints; the test fails if the command does."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        variables["PATH"] = os.pathsep.join([str(self.folder / "bin"), variables["PATH"]])
        words = [str(word) for word in command]
        result = subprocess.run(
            words, cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert result.returncode == 0, f"{' '.join(words)}\n{result.stdout}{result.stderr}"
        return result.stdout

    def pip(self, *arguments: object) -> str:
        """Run this process's pip for the environment."""
        return self.run(
            sys.executable, "-m", "pip", "--python", self.folder / "bin" / "python", *arguments, cwd=self.folder
        )

    def install(self, *requirements: object) -> None:
        """Install requirements in the tested versions."""
        # Compiling all of torch takes longer than compiling what is imported.
        self.pip("install", "--quiet", "--no-compile", "--constraint", CONSTRAINTS, *requirements)


def make_core_environment(folder: Path) -> CleanEnvironment:
    """Install the wheel without extras below a folder; once, if several processes ask for it."""
    environment = CleanEnvironment(folder / "core")
    with _made_once(environment) as needed:
        if needed:
            wheel = ("-m", "build", "--wheel", "--outdir", folder / "dist", ROOT)
            environment.run(sys.executable, *wheel, cwd=folder)
            (torch,) = (line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
            environment.install(torch, _wheel(folder))
    return environment


def make_examples_environment(core: CleanEnvironment) -> CleanEnvironment:
    """Install the wheel with the extras and packages that the examples name, on top of the core environment; once."""
    environment = CleanEnvironment(core.folder.parent / "examples")
    with _made_once(environment) as needed:
        if needed:
            (environment.site_packages / "core.pth").write_text(f"{core.site_packages}\n")
            wheel = _wheel(core.folder.parent)
            environment.install("--no-deps", "--ignore-installed", wheel)
            extras = ",".join(sorted(set().union(*(example.extras for example in EXAMPLES))))
            packages = sorted(set().union(*(example.packages for example in EXAMPLES)))
            environment.install(f"doap[{extras}] @ {wheel.as_uri()}", *packages)
    return environment


def _wheel(folder: Path) -> Path:
    (wheel,) = (folder / "dist").glob("doap-*.whl")
    return wheel


@contextmanager
def _made_once(environment: CleanEnvironment) -> Iterator[bool]:
    """Give an empty environment to the first process that asks for it, and let the others wait."""
    ready = environment.folder / "ready"
    with FileLock(f"{environment.folder}.lock"):
        needed = not ready.exists()
        if needed:
            venv.create(environment.folder, clear=True)
        yield needed
        ready.touch()
