"""Start-up: what `import doap` and the command line import, in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from doap.cli import main
from doap.cli.data import commands as data
from doap.cli.evaluating import commands as evaluating
from doap.cli.evaluating import show

# Not pydantic, which Typer imports to parse the options of some commands.
LARGE = ("torch", "cv2", "numpy", "matplotlib", "sklearn", "scipy", "lightning", "jinja2", "yaml", "PIL")
GROUPS = {"eval": tuple(evaluating.COMMANDS), "data": tuple(data.COMMANDS), "show": tuple(show.COMMANDS)}
HELPS = [
    ["--help"],
    *([subcommand, "--help"] for subcommand in main.COMMANDS),
    *([group, subcommand, "--help"] for group, subcommands in GROUPS.items() for subcommand in subcommands),
]
RUN = """
import contextlib, io, json, sys
from doap.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["doap", *words]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main()
    assert not words[-1] == "--help" or "Usage: doap" in shown.getvalue(), words
"""


def modules_after(code: str, *arguments: str, folder: Path | None = None) -> set[str]:
    """Return the modules that a new process has imported after it ran some code."""
    code += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", code, *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return set(json.loads(shown.stdout.splitlines()[-1]))


def test_importing_doap_imports_no_library() -> None:
    assert not modules_after("import doap").intersection((*LARGE, "typer", "rich"))


def test_no_help_imports_a_large_library() -> None:
    assert not modules_after(RUN, json.dumps(HELPS)).intersection(LARGE)


def test_a_command_does_not_import_the_others() -> None:
    modules = modules_after(RUN, json.dumps([["match", "--help"]]))
    assert "doap.cli.using.match" in modules
    others = {subcommand.module for subcommand in main.COMMANDS.values()} - {"doap.cli.using.match"}
    assert not modules & others


def test_matching_and_describing_import_only_what_they_need(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 255, (12, 16), np.uint8)
    Image.fromarray(grey).resize((160, 120), Image.Resampling.BICUBIC).save(tmp_path / "a.png")
    model = ["--model", "doap-tiny-128"]
    commands = [["match", "a.png", "a.png", *model], ["describe", "a.png", "-o", "f", *model]]
    modules = modules_after(RUN, json.dumps(commands), folder=tmp_path)
    assert (tmp_path / "f").exists()
    assert {"torch", "cv2"} <= modules
    unneeded = ("sklearn", "matplotlib", "scipy", "lightning", "jinja2", "torch._dynamo", "torch._inductor", "sympy")
    assert not modules.intersection(unneeded)


def test_the_objective_needs_no_compiler() -> None:
    code = (
        "import torch; from doap.objectives import AveragePrecisionLoss; loss = AveragePrecisionLoss('real'); "
        "loss(torch.randn(8, 4, requires_grad=True), torch.arange(8) // 2).backward()"
    )
    assert "torch._dynamo" not in modules_after(code)
