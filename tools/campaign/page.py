"""Results of a campaign as JSON and as a page."""

import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment

from campaign.findings import PartResult
from doap.files import write_text
from doap.version import __version__

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Campaign</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .15em .8em; text-align: right }
td:first-child, th:first-child { text-align: left } tr:nth-child(even) { background: #f4f4f4 }
code { background: #f0f0f0; overflow-wrap: anywhere } .bad { color: #b00 }
</style>
<h1>Campaign of attacks on doap {{ version }}</h1>
<p>{{ machine }}. {{ seconds }} seconds, <b{% if findings %} class="bad"{% endif %}>{{ findings }} findings</b>.</p>
{% for part in parts %}
<h2>{{ part.name }}: {{ part.title }}</h2>
<p>{{ part.seconds | round(1) }} seconds{% for name, value in part.settings.items() %}, {{ name }} {{ value }}
{%- endfor %}.</p>
{% if part.counts %}
<table><tr>{% for name in part.counts[0] %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in part.counts %}<tr>{% for value in row.values() %}<td>{{ value }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endif %}
{% for finding in part.findings %}
<p class="bad"><b>{{ finding.where }}</b> ({{ finding.count }}): {{ finding.what }}<br>
<code>{{ finding.replay }}</code></p>
{% endfor %}
{% for line in part.skipped %}<p>Not counted: {{ line }}</p>{% endfor %}
{% endfor %}
</html>
"""


def write_results(folder: Path, parts: Sequence[PartResult]) -> None:
    """Write results.json and index.html."""
    seconds = round(sum(part.seconds for part in parts), 1)
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    findings = sum(len(part.findings) for part in parts)
    records = [part.record() for part in parts]
    content = {"doap": __version__, "machine": machine, "seconds": seconds, "command": sys.argv[1:], "parts": records}
    write_text(folder / "results.json", json.dumps(content, indent=1) + "\n")
    page = Environment(autoescape=True).from_string(PAGE)
    write_text(
        folder / "index.html",
        page.render(version=__version__, machine=machine, seconds=seconds, findings=findings, parts=parts),
    )
