"""Environments in which the wheel is installed with what it requires, and nothing of the repository can be imported.

The requirements are not downloaded again: the packages of this environment, of the tested versions, are linked.
"""

import os
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from filelock import FileLock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.example_scripts import EXAMPLES

ROOT = Path(__file__).parents[2]
PROJECT = "doap"


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

    def install(self, wheel: Path, extras: Iterable[str] = (), packages: Iterable[str] = ()) -> None:
        """Install a wheel of doap, and link what it, its extras and other packages require."""
        self.pip("install", "--quiet", "--no-deps", wheel)
        (installed,) = distributions(name=PROJECT, path=[str(self.site_packages)])
        requirements = [Requirement(f"{PROJECT}[{','.join(extras)}]"), *map(Requirement, packages)]
        needed = find_required(requirements, {PROJECT: installed})
        link_packages([found for name, found in needed.items() if name != PROJECT], self.site_packages)


def find_required(requirements: Iterable[Requirement], known: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return the distributions that requirements need, directly or not, by name, as pip would select them.

    Args:
        requirements: What is required.
        known: Distributions by name that are used instead of those of this environment.
    """
    needed: dict[str, Distribution] = {}
    waiting = [(requirement, extra) for requirement in requirements for extra in {"", *requirement.extras}]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found = needed[name] = known.get(name) or distribution(name)
        assert requirement.specifier.contains(found.version, prereleases=True), f"{requirement}: {found.version} here"
        for other in map(Requirement, found.requires or []):
            if other.marker is None or other.marker.evaluate({"extra": extra}):
                waiting += [(other, own) for own in {"", *other.extras}]
    return needed


def link_packages(packages: Iterable[Distribution], target: Path) -> None:
    """Link the files of distributions into the site-packages of another environment.

    A folder is linked as a whole, with its bytecode, unless several distributions have files in it.
    """
    owners = Counter(top for package in distributions() for top in _top_names(package))
    for package in packages:
        for file in package.files or []:
            top = file.parts[0]
            linked = Path(top if owners[top] == 1 else file)
            link = target / linked
            if top != ".." and not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(str(package.locate_file(linked)))


def _top_names(package: Distribution) -> set[str]:
    return {file.parts[0] for file in package.files or []}


def make_core_environment(folder: Path) -> CleanEnvironment:
    """Install the wheel without extras below a folder; once, if several processes ask for it."""
    environment = CleanEnvironment(folder / "core")
    with _made_once(environment) as needed:
        if needed:
            wheel = ("-m", "build", "--wheel", "--outdir", folder / "dist", ROOT)
            environment.run(sys.executable, *wheel, cwd=folder)
            environment.install(_wheel(folder))
    return environment


def make_examples_environment(core: CleanEnvironment) -> CleanEnvironment:
    """Install the wheel with the extras and packages that the examples name; once."""
    environment = CleanEnvironment(core.folder.parent / "examples")
    with _made_once(environment) as needed:
        if needed:
            extras = set().union(*(example.extras for example in EXAMPLES))
            packages = set().union(*(example.packages for example in EXAMPLES))
            environment.install(_wheel(core.folder.parent), extras, packages)
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
