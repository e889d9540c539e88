"""The notebooks of examples: they run from top to bottom, and are stored without output."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
PRINTED = {
    "match_two_images": "verified matches of SIFT",
    "train_on_own_photos": "verified matches of a pair that it was not trained on",
    "compare_with_rootsift": "rootsift",
    "objective_step_by_step": "1 - mean AP",
}

SHORT = {
    '"doap-128"': '"doap-tiny-128"',
    "--points 100": "--points 40",
    "epochs=6": "epochs=1",
    "copies=3, keypoints=500": "copies=1, keypoints=200",
}
"""What the notebooks are run with in place of large models, many points and long trainings."""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def printed_text(notebook: nbformat.NotebookNode) -> str:
    """Return everything that a notebook printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def shortened(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook with all of `SHORT` replaced."""
    for cell in notebook.cells:
        for written, short in SHORT.items():
            cell.source = cell.source.replace(written, short)
    return notebook


@each_notebook
@pytest.mark.slow
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = shortened(nbformat.read(path, as_version=4))
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert PRINTED[path.stem] in printed_text(notebook)


def test_everything_that_is_shortened_is_in_a_notebook() -> None:
    sources = "".join(path.read_text() for path in NOTEBOOKS).replace('\\"', '"')
    assert [written for written in SHORT if written not in sources] == []


@each_notebook
def test_a_notebook_is_stored_without_output(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert notebook.cells[0].source.startswith("# ")


def test_there_are_four() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(PRINTED)
