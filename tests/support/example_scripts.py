"""The example scripts, and what their docstrings say is to be installed for them."""

import ast
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ExampleScript:
    """A script of the folder examples."""

    path: Path

    @cached_property
    def requirements(self) -> list[str]:
        """What its docstring passes to `pip install`."""
        docstring = ast.get_docstring(ast.parse(self.path.read_text())) or ""
        match = re.search(r"`?pip install ([^`\n]*)", docstring)
        assert match, f"{self.path.name}: the docstring must say pip install 'doap[EXTRA]', or pip install doap"
        return shlex.split(match[1].rstrip(".,;"))

    @property
    def extras(self) -> set[str]:
        """Extras of doap that it needs."""
        match = re.fullmatch(r"doap(?:\[([\w,]+)\])?", self.requirements[0])
        assert match, f"{self.path.name}: pip install {self.requirements[0]} is not doap or doap[EXTRA]"
        return set((match[1] or "").split(",")) - {""}

    @property
    def packages(self) -> set[str]:
        """Packages that it needs beside doap."""
        return set(self.requirements[1:])

    def imports(self) -> set[str]:
        """Return the top-level modules that it imports."""
        modules = set()
        for node in ast.walk(ast.parse(self.path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add((node.module or "").partition(".")[0])
        return modules


EXAMPLES = [ExampleScript(path) for path in sorted((ROOT / "examples").glob("*.py"))]
