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
PACKAGES = {"scikit-image": "skimage"}
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.path.stem)


@each_example
def test_an_example_names_what_it_imports(example: ExampleScript) -> None:
    installed = {PACKAGES[name] for name in example.packages}
    installed |= {library for library, extra in OPTIONAL.items() if extra in example.extras}
    missing = example.imports() - CORE - UNAVAILABLE - installed - sys.stdlib_module_names
    assert not missing, f"{example.path.name}: {missing} come with none of {example.requirements}"


@each_example
@pytest.mark.slow
def test_an_example_runs(example: ExampleScript, examples_environment: CleanEnvironment, tmp_path: Path) -> None:
    script = Path(shutil.copy(example.path, tmp_path))
    printed = examples_environment.run("python", script.name, cwd=tmp_path)
    result = printed.splitlines()[-1]
    assert [float(number) for number in re.findall(r"\d+(?:\.\d+)?", result) if float(number) > 0], result
