"""Every example runs in an environment with nothing but the wheel and what its docstring says is to be installed."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from doap.extras import OPTIONAL
from support.clean_environment import CleanEnvironment
from support.example_scripts import EXAMPLES, ExampleScript

CORE = {"cv2", "doap", "numpy", "PIL", "torch"}
UNAVAILABLE = {"hloc"}  # not on PyPI: used where it is installed
MODULES = {"scikit-image": "skimage"}  # whose names differ from their packages'
RESULTS: dict[str, tuple[str, str]] = {
    "colmap_database": (r"\S*database\.db: 3 images, \d{3,} keypoints, \d{3,} verified matches", "*/database.db"),
    "hloc_files": (r"\| doap-tiny-256b \| float16 \| \d+ \|.*", "hloc-example/feats-*.h5"),
    "hub_folder": (r".* the same descriptors: True", "*/model.safetensors"),
    "kornia_extraction": (r"\| .* \| \d{3,} \| \d{3,} \| \d\d\.\d+ \| 0\.\d+ \|", "*.py"),
    "kornia_match": (r".*: \d{3,} matches, \d{3,} agree .*", "kornia_match.png"),
    "onnx_describe": (r"(9\d\.\d|100\.0)% of the descriptors are those of PyTorch.*", "*.onnx"),
    "opencv_match": (r"doap-128: 2000 and 2000 keypoints, \d{3,} inliers, .*", "opencv_match.png"),
    "opencv_stitch": (r"panorama\.jpg: \d{3}x\d{3} pixels of 3 photos, focal length [67]\d\d pixels", "panorama.jpg"),
    "slam_vocabulary": (r".*: most similar .*, score 0\.\d+", "slam-example/voc.txt"),
}
"""The last line that an example prints, and a file that it leaves."""

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.path.stem)


@each_example
def test_an_example_names_what_it_imports(example: ExampleScript) -> None:
    installed = {MODULES.get(name, name) for name in example.packages}
    installed |= {library for library, extra in OPTIONAL.items() if extra in example.extras}
    missing = example.imports() - CORE - UNAVAILABLE - installed - sys.stdlib_module_names
    assert not missing, f"{example.path.name}: {missing} come with none of {example.requirements}"


@each_example
@pytest.mark.slow
def test_an_example_runs(example: ExampleScript, examples_environment: CleanEnvironment, tmp_path: Path) -> None:
    script = Path(shutil.copy(example.path, tmp_path))
    printed = examples_environment.run("python", script.name, cwd=tmp_path)
    line, file = RESULTS[example.path.stem]
    assert re.fullmatch(line, printed.splitlines()[-1]), printed
    assert list(tmp_path.glob(file))


def test_the_result_of_every_example_is_checked() -> None:
    assert set(RESULTS) == {example.path.stem for example in EXAMPLES}
