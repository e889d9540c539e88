"""The import graph: no cycle, no import of a higher layer, small folders."""

import ast
from collections import Counter, defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "doap"

LAYERS = (
    ("errors", "version", "choices", "forking", "parsing"),
    ("types", "files", "extras", "extents", "thresholds", "devices", "onednn"),
    ("parallel", "locking"),
    ("geometry",),
    ("objectives", "networks", "matching"),
    ("images",),
    ("features", "datasets"),
    ("folders",),
    ("training", "evaluation"),
    ("experiments", "report", "bridges"),
    ("demo",),
    ("app",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MAX_FILES = 14


def find_modules() -> dict[str, Path]:
    """Return the path of every module, by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("doap", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a file imports, anywhere in it."""
    targets: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("doap"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                targets.add(name if name in known else str(node.module))
        elif isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names if alias.name.startswith("doap")}
    return targets


@cache
def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports; not made by workers that only collect these tests."""
    modules = find_modules()
    return {name: imports(path, modules) for name, path in modules.items()}


def test_every_import_exists() -> None:
    assert {target for targets in import_graph().values() for target in targets} <= set(import_graph())


def test_no_package_imports_a_higher_one() -> None:
    upward = defaultdict(list)
    for name, targets in import_graph().items():
        for target in targets:
            own, other = (*name.split("."), "")[1], (*target.split("."), "")[1]
            if own in LEVEL and other in LEVEL and own != other and LEVEL[own] <= LEVEL[other]:
                upward[name].append(target)
    assert not upward


def test_every_package_has_a_layer() -> None:
    names = {name.split(".")[1] for name in import_graph() if name != "doap"} - {"__main__"}
    assert names == set(LEVEL)


def test_the_root_is_not_imported_from_within() -> None:
    assert {name for name, targets in import_graph().items() if "doap" in targets} == set()


def test_no_import_is_circular() -> None:
    order = list(TopologicalSorter({name: targets - {name} for name, targets in import_graph().items()}).static_order())
    assert len(order) == len(import_graph())


def test_folders_are_small() -> None:
    counts = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in find_modules().values())
    assert {folder: count for folder, count in counts.items() if count > MAX_FILES} == {}
