"""The pages of the documentation: their blocks of code, commands, links and headings."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PROGRAMS = ("doap", "python", "python3", "make", "pip", "torchrun", "docker", "git", "tensorboard")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^\n|\A)((?: {4}.*\n|\n)+)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def page_name(page: Path) -> str:
    """Return the path of a page below the repository."""
    return page.relative_to(ROOT).as_posix()


def read_page(name: str) -> str:
    """Return the text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def fenced_blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language; that of commands is the empty one, or sh."""
    return [content for name, content in FENCE.findall(text) if name == language]


def page_commands(text: str) -> Iterator[str]:
    """Yield the lines of fenced and indented blocks that start a program, continued lines joined."""
    blocks = [*fenced_blocks(text, ""), *fenced_blocks(text, "sh"), *INDENTED.findall(FENCE.sub("", text))]
    for block in blocks:
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            words = line.split()
            if words and words[0] in PROGRAMS:
                yield line.strip()


def links(text: str) -> list[tuple[str, str]]:
    """Return target and anchor of each relative link outside blocks of code; either may be empty."""
    return LINK.findall(FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return found
