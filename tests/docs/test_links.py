"""Links of all pages lead to files and headings that exist; the site shows every page."""

from pathlib import Path

import pytest
import yaml

from docs_site import COMMANDS_PAGE, redirect_links
from support.pages import DOCS, PAGES, ROOT, anchors, links, page_name


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in links(page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page_name(page)}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{page_name(page)}: {target}#{anchor}"


def nav_pages() -> set[str]:
    """Return the pages in the navigation of the site."""

    class Loader(yaml.SafeLoader):
        """Reads the tags of Python functions as nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]
    found: set[str] = set()
    entries = list(nav)
    while entries:
        entry = entries.pop()
        if isinstance(entry, str):
            found.add(entry)
        else:
            for value in entry.values():
                entries += value if isinstance(value, list) else [value]
    return found


def test_the_navigation_has_every_page() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert nav_pages() == pages | {COMMANDS_PAGE}


def test_links_out_of_the_docs_lead_to_the_repository() -> None:
    page = "[a](../../examples/x.py#top) ![b](../images/b.png) [c](https://c) [d](#d) [e](../results)"
    expected = "[a](R/examples/x.py#top) ![b](../images/b.png) [c](https://c) [d](#d) [e](R/docs/results)"
    assert redirect_links(page, "bridges/p.md", "R") == expected


def test_every_picture_is_on_a_page() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target, _ in links(page.read_text("utf-8"))}
    assert {path.name for path in (DOCS / "images").iterdir() if path not in shown} == set()
