"""Every example runs in an environment with nothing but the wheel and what its docstring says is to be installed."""

import shutil
import sys
from pathlib import Path

import pytest

from doap.extras import OPTIONAL
from support.clean_environment import CleanEnvironment
from support.example_results import CHECKS
from support.example_scripts import EXAMPLES, ExampleScript

CORE = {"cv2", "doap", "numpy", "PIL", "torch"}
UNAVAILABLE = {"hloc"}  # not on PyPI: used where it is installed
MODULES = {"scikit-image": "skimage"}  # whose names differ from their packages'

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
    CHECKS[example.path.stem](printed, tmp_path)


def test_the_result_of_every_example_is_checked() -> None:
    assert set(CHECKS) == {example.path.stem for example in EXAMPLES}
