"""What is on the page as a Python program and as commands, which give the same matches."""

import shlex

from doap.app.match.pair import LONGEST_SIDE, MatchOptions
from doap.app.match.session import MatchSession


def python_code(session: MatchSession, device: str) -> str:
    """Return a program that matches the pictures with the options of the page."""
    options = session.options
    paths = ", ".join(repr(picture.source) for picture in session.pictures)
    names = "".join(f"{method!r}, " for method in options.methods)
    load = "doap.load(name)" if device == "cpu" else f"doap.load(name, {device!r})"
    describing = f"max_keypoints={options.keypoints}, max_size={LONGEST_SIDE}"
    if options.wide:
        steps = [
            f"result = doap.match_wide(*paths, model, {describing}, {_matching(options, device)})",
            "first, second, matches = result.first, result.second, result.matches",
        ]
    else:
        steps = [
            f"first, second = (doap.detect_and_describe(path, model, {describing}) for path in paths)",
            f"matches = doap.match(first, second, {_matching(options, device)})",
        ]
    lines = [
        "import doap",
        "",
        f"paths = {paths}",
        f"for name in ({names.strip() if len(options.methods) == 1 else names.rstrip(', ')}):",
        *(f"    {line}" for line in (f"model = {load}", *steps, 'print(f"{name}: {matches}")')),
    ]
    return "\n".join(lines) + "\n"


def command_lines(session: MatchSession, device: str) -> str:
    """Return one `doap match` per method with the options of the page."""
    options = session.options
    pictures = [_argument(picture.source) for picture in session.pictures]
    lines = []
    for number, method in enumerate(options.methods, 1):
        name = "matches" if len(options.methods) == 1 else f"matches-{number}"
        words = ["doap", "match", *pictures, "--model", method, "--max-keypoints", str(options.keypoints)]
        words += [
            "--max-size",
            str(LONGEST_SIDE),
            "--geometry",
            options.geometry,
            "--threshold",
            f"{options.threshold:g}",
        ]
        if options.ratio is not None:
            words += ["--ratio", f"{options.ratio:g}"]
        if options.wide:
            words.append("--wide")
        words += ["--device", device, "-o", f"{name}.png", "--json", f"{name}.json"]
        lines.append(shlex.join(words))
    return "\n".join(lines) + "\n"


def _matching(options: MatchOptions, device: str) -> str:
    ratio = "" if options.ratio is None else f"ratio={options.ratio:g}, "
    where = "" if device == "cpu" else f", device={device!r}"
    return f"{ratio}geometry={options.geometry!r}, threshold={options.threshold:g}{where}"


def _argument(path: str) -> str:
    """Return a path that is not taken for an option."""
    return f"./{path}" if path.startswith("-") else path
