"""What `pip install doap` gives: the core alone matches images, and every command says which extra it needs."""

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

# Runs the command line in a process in which the optional packages cannot be imported.
WITHOUT_EXTRAS = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(OPTIONAL)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from doap.cli.main import main
main()
"""


def run_without_extras(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def project() -> dict[str, list[str]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        metadata = tomllib.load(file)["project"]
    return {"core": metadata["dependencies"], **metadata["optional-dependencies"]}


@pytest.mark.slow
def test_images_are_matched_and_described_without_extras(tmp_path: Path) -> None:
    matched = run_without_extras(tmp_path, "match", LEFT, RIGHT, "--max-keypoints", "300", "--json", "matches.json")
    assert (matched.returncode, matched.stderr) == (0, "")
    assert (tmp_path / "matches.png").stat().st_size > 10_000
    described = run_without_extras(tmp_path, "describe", LEFT, "-o", "features", "--max-keypoints", "100")
    assert (described.returncode, described.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("train", "photos-real", "--data", "set", "-o", "run"), "train"),
        (("recipes",), "train"),
        (("demo",), "demo"),
        (("eval", "warped", "sift", "--data", LEFT, "--figure", "scores.png"), "eval"),
        (("report", ".", "-o", "page"), "eval"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_command_names_the_extra_that_it_needs(tmp_path: Path, arguments: tuple[str, ...], extra: str) -> None:
    result = run_without_extras(tmp_path, *arguments)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert f"pip install 'doap[{extra}]'" in result.stderr


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
    matched = core_environment.run("doap", "match", LEFT, RIGHT, "-o", tmp_path / "matches.png", cwd=tmp_path)
    assert int(matched.split()[0]) > 300
