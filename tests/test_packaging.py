"""What `pip install doap` gives: the core alone matches images, and every command says which extra it needs."""

import json
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import skimage

from doap.extras import OPTIONAL, PACKAGE_EXTRAS
from support.clean_environment import CleanEnvironment

ROOT = Path(__file__).parents[1]
STEREO = Path(skimage.__file__).parent / "data"
LEFT, RIGHT = str(STEREO / "motorcycle_left.png"), str(STEREO / "motorcycle_right.png")

# Runs command lines in a process in which the optional packages cannot be imported; prints what each of them gave.
WITHOUT_EXTRAS = f"""
import contextlib, io, json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(OPTIONAL)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from doap.cli.main import main
results = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["doap", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            main()
        except SystemExit as ended:
            results.append((ended.code or 0, errors.getvalue()))
print(json.dumps(results))
"""


def run_without_extras(folder: Path, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    """Run commands one after the other; return the exit status and standard error of each."""
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, json.dumps(commands)],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return [(int(status), str(errors)) for status, errors in json.loads(process.stdout)]


def project() -> dict[str, list[str]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        metadata = tomllib.load(file)["project"]
    return {"core": metadata["dependencies"], **metadata["optional-dependencies"]}


NEEDS: dict[tuple[str, ...], str] = {
    ("train", "photos-real", "--data", "set", "-o", "run"): "train",
    ("recipes",): "train",
    ("demo",): "demo",
    ("eval", "warped", "sift", "--data", LEFT, "--figure", "scores.png"): "eval",
    ("report", ".", "-o", "page"): "eval",
}
"""Commands, and the extra that each of them needs."""


@pytest.mark.slow
def test_commands_work_without_extras_or_name_the_one_that_they_need(tmp_path: Path) -> None:
    match = ("match", LEFT, RIGHT, "--max-keypoints", "300", "--json", "matches.json")
    describe = ("describe", LEFT, "-o", "features", "--max-keypoints", "100")
    matched, described, *others = run_without_extras(tmp_path, match, describe, *NEEDS)
    assert matched == described == (0, "")
    assert (tmp_path / "matches.png").stat().st_size > 10_000
    for (command, extra), (status, errors) in zip(NEEDS.items(), others, strict=True):
        assert (status, errors.count("\n")) == (1, 1), (command, errors)
        assert f"pip install 'doap[{extra}]'" in errors, command


def test_every_optional_library_is_in_the_extra_that_is_named() -> None:
    names = {"yaml": "pyyaml", "skimage": "scikit-image", "sklearn": "scikit-learn"}
    extras = project()
    assert set(PACKAGE_EXTRAS.values()) <= set(extras)
    for library, extra in OPTIONAL.items():
        assert names.get(library, library) in " ".join(extras[extra]).lower(), (library, extra)
        assert find_spec(library) or library == "pycolmap"  # no wheel for ARM Linux


def test_the_core_needs_no_optional_library() -> None:
    core = " ".join(project()["core"]).lower()
    for name in {*OPTIONAL, "scikit"}:
        assert name not in core


@pytest.mark.parametrize("command", [["-m", "doap", "--help"], ["-m", "doap", "eval", "oxford", "--help"]])
def test_help_does_not_import_torch(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True, timeout=120
    )
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert imported & {"rich.console", "rich"}
    assert not imported & {"torch", "cv2", "scipy", "matplotlib", "lightning", "safetensors"}


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(tmp_path: Path, core_environment: CleanEnvironment) -> None:
    installed = core_environment.pip("list", "--format", "freeze").lower()
    assert "doap==" in installed
    for name in ("lightning", "tensorboard", "matplotlib", "scipy", "h5py", "scikit", "kornia", "onnx", "pytest"):
        assert name not in installed
    imported = core_environment.run("python", "-c", "import doap; print(doap.__file__)", cwd=tmp_path)
    assert imported.startswith(str(core_environment.folder))
    assert "doap-128" in core_environment.run("python", "-m", "doap", "models", cwd=tmp_path)
    match = ("match", LEFT, RIGHT, "--max-keypoints", 500, "-o", tmp_path / "matches.png")
    assert int(core_environment.run("doap", *match, cwd=tmp_path).split()[0]) > 150
