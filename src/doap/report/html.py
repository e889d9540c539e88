"""Pieces of HTML: the style of the page, tables, pictures, settings."""

import json
from html import escape
from typing import Any

from doap.evaluation.harness.table import Row, Table

STYLE = """
:root { --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --tint: #f6f8fa; --accent: #2f5d8a }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink) }
body { max-width: 1000px; margin: 2.5em auto; padding: 0 1.2em }
h1 { margin-bottom: .1em } h2 { margin: 2.6em 0 .2em; padding-top: .5em; border-top: 2px solid var(--line) }
h3 { margin: 1.4em 0 .4em; font-size: 1.05em } h4 { margin: 1em 0 0; font-size: .95em } a { color: var(--accent) }
.place { color: var(--accent); font-weight: 600; font-size: .9em }
.soft, figcaption { color: var(--soft); font-size: .9em }
nav ol { columns: 2; padding-left: 1.4em; margin: .6em 0 } nav .none { color: var(--soft) }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .88em; margin: .6em 0 }
th, td { padding: .28em .7em; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th { border-bottom: 2px solid var(--line); vertical-align: bottom; font-weight: 600 }
td.word, th.word { text-align: left } tr.quoted td { color: var(--soft); font-style: italic; background: var(--tint) }
tr.quoted td:first-child::after { content: " quoted"; font: 600 .72em system-ui; color: #8a6d1d; vertical-align: super }
tr.first td { border-top: 2px solid var(--line) }
figure { margin: 1em 0 } img { max-width: 100% }
details { margin: .4em 0 } summary { cursor: pointer; color: var(--soft) }
pre { background: var(--tint); padding: .7em .9em; border-radius: 6px; margin: .5em 0 }
pre { overflow-x: auto; font-size: .84em }
.missing { background: #fff8e5; border-left: 4px solid #d4a72c; padding: .5em .9em; margin: .8em 0 }
@media (max-width: 700px) { nav ol { columns: 1 } }
"""


def document(title: str, body: str) -> str:
    """A whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def table(shown: Table) -> str:
    """A table, the best measured number of each column bold, quoted rows set apart, its note beneath."""
    best = _best(shown)
    heads = "".join(
        f"<th{_word(shown, place)}>{escape(name).replace(chr(10), '<br>')}</th>"
        for place, name in enumerate(shown.columns)
    )
    rows = ""
    for number, row in enumerate(shown.rows):
        begins = row.quoted and number > 0 and not shown.rows[number - 1].quoted
        classes = " ".join(name for name, on in (("quoted", row.quoted), ("first", begins)) if on)
        cells = "".join(
            f"<td{_word(shown, place)}>{_bold(cell, not row.quoted and best.get(place) == cell)}</td>"
            for place, cell in enumerate(row.cells)
        )
        rows += f'<tr class="{classes}">{cells}</tr>' if classes else f"<tr>{cells}</tr>"
    note = f'<p class="soft">{escape(shown.note)}.</p>' if shown.note else ""
    title = f"<h4>{escape(shown.title)}</h4>" if shown.title else ""
    return f'{title}<div class="wide"><table><tr>{heads}</tr>{rows}</table></div>{note}'


def picture(file: str, caption: str) -> str:
    """A picture beside the page."""
    words = escape(caption)
    return f'<figure><img src="{escape(file)}" alt="{words}"><figcaption>{words}</figcaption></figure>'


def details(title: str, content: Any) -> str:
    """What is folded away until it is asked for: anything that JSON writes."""
    text = escape(json.dumps(content, indent=1, ensure_ascii=False))
    return f"<details><summary>{escape(title)}</summary><pre>{text}</pre></details>"


def commands(text: str) -> str:
    """What to type."""
    return f"<pre><code>{escape(text)}</code></pre>"


def _word(shown: Table, place: int) -> str:
    return ' class="word"' if place < shown.words else ""


def _bold(cell: str, on: bool) -> str:
    return f"<b>{escape(cell)}</b>" if on else escape(cell)


def _best(shown: Table) -> dict[int, str]:
    """The cell of the best measured number in each column, where it is known what is better."""
    measured = [row for row in shown.rows if not row.quoted]
    if shown.better is None or len(measured) < 2:
        return {}
    choose = min if shown.better == "less" else max
    best = {}
    for place in range(shown.words, len(shown.columns)):
        cells = [row.cells[place] for row in measured if _value(row, place) is not None]
        if cells:
            best[place] = choose(cells, key=lambda cell: float(cell.split()[0]))
    return best


def _value(row: Row, place: int) -> float | None:
    try:
        return float(row.cells[place].split()[0])
    except ValueError:  # a dash: not measured
        return None
