"""What could run code of others or take files of others for ours: unsafe calls, plain http, weights without a hash."""

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from campaign.findings import Finding, PartResult
from doap.datasets.download.catalogue import CATALOGUE, describe_plain_http, is_plain_http
from doap.networks.card import read_card

PACKAGE = Path(__file__).parents[2] / "src" / "doap"
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads", "pickle.Unpickler",
    "marshal.load", "marshal.loads", "shelve.open", "joblib.load", "dill.load", "dill.loads", "yaml.load",
    "yaml.unsafe_load", "yaml.full_load", "cv2.imread", "cv2.imdecode", "cv2.FileStorage", "tempfile.mktemp",
    "zipfile.ZipFile.extractall", "torch.hub.load", "torch.jit.load",
}  # fmt: skip
ALLOWED = {("parallel/worker.py", "pickle.loads"): "tasks of the parent process, never a file"}


def unsafe_calls(package: Path = PACKAGE) -> Iterator[tuple[str, str]]:
    """Yield the place and name of every call that could run code of a file, or decode any format."""
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                problem = _problem(node)
                if problem and (name, problem) not in ALLOWED:
                    yield f"{name}:{node.lineno}", problem


def _problem(call: ast.Call) -> str | None:
    """Return what is unsafe in a call."""
    name = _dotted(call.func)
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in FORBIDDEN or name.endswith((".extractall", ".read_pickle", ".to_pickle")):
        return name
    if _is_true(options.get("shell")):
        return f"{name}(shell=True)"
    if _is_true(options.get("allow_pickle")):
        return f"{name}(allow_pickle=True)"
    if name == "torch.load" and not _is_true(options.get("weights_only")):
        return "torch.load without weights_only=True"
    if name == "Image.open" and "formats" not in options:
        return "Image.open without a list of formats"
    return None


def _dotted(node: ast.expr) -> str:
    """Return the dotted name of a function, without what is called or subscripted before it."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def undocumented_plain_http() -> list[str]:
    """Return the URLs of the catalogue that are neither https nor of a set that the command line names."""
    documented = describe_plain_http()
    return [
        url
        for name, data in CATALOGUE.items()
        for file in data.files
        for url in file.urls
        if not url.startswith("https://") and not (is_plain_http(url) and name in documented)
    ]


def wrong_hashes(folder: Path = PACKAGE / "weights") -> list[str]:
    """Return the shipped weights whose SHA-256 is not that on their card."""
    return [
        path.name
        for path in sorted(folder.glob("*.safetensors"))
        if hashlib.sha256(path.read_bytes()).hexdigest() != read_card(path).sha256
    ]


def check_supply() -> PartResult:
    """Check all of it."""
    result = PartResult("supply", "unsafe calls, plain http, hashes of weights")
    replay = "python -m campaign supply"
    calls, urls, weights = list(unsafe_calls()), undocumented_plain_http(), wrong_hashes()
    result.findings += [Finding(location, problem, replay) for location, problem in calls]
    result.findings += [Finding(url, "plain http that the command line does not name", replay) for url in urls]
    result.findings += [Finding(name, "its SHA-256 is not that on its card", replay) for name in weights]
    files = len(list(PACKAGE.rglob("*.py")))
    addresses = sum(len(file.urls) for data in CATALOGUE.values() for file in data.files)
    shipped = len(list((PACKAGE / "weights").glob("*.safetensors")))
    for where, cases, wrong in (("files of code", files, calls), ("addresses", addresses, urls)):
        result.counts.append({"where": where, "cases": cases, "findings": len(wrong)})
    result.counts.append({"where": "weights", "cases": shipped, "findings": len(weights)})
    result.skipped += [f"{location}: {call}: {reason}" for (location, call), reason in ALLOWED.items()]
    return result
