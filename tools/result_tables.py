"""Write the tables of README.md and of the pages in docs from docs/results and benchmarks/results.

    python tools/result_tables.py        # after measuring again; also draws the figures of the studies

A table is between `<!-- NAME -->` and `<!-- /NAME -->`; a test fails if it is out of date.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from doap import list_models
from doap.evaluation.harness.result import Result, read_result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.hpatches.tables import HEADLINES, NOISE_COLUMNS, mean_score
from doap.evaluation.image_pairs.tables import oxford_tables, sequence_table
from doap.evaluation.phototour.tables import phototour_table
from doap.evaluation.romepatches.tables import romepatches_table
from doap.experiments.study_figure import draw_study
from doap.experiments.study_table import RunSummary, study_table, summarise_runs
from doap.report.tidy import tidy_table

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
SPEED = DOCS.parent / "benchmarks" / "results"
MATCHERS = ("opencv", "faiss", "product")
STUDIES = ("objectives", "objectives-cpu", "data", "lists")
BASELINES = (
    "desdis-32",
    "desdis-8",
    "rootsift",
    "hardtfeat-liberty",
    "teblid-512",
    "sift",
    "beblid-512",
    "binboost-256",
    "orb",
    "latch",
)


def hpatches() -> dict[str, str]:
    """Return the text of each table of results-hpatches.md, by name."""
    return {name: result_text(name, hpatches_summary) for name in ("hpatches", "hpatches-measured", "i_contruction")}


def oxford() -> dict[str, str]:
    """Return the text of each table of results-oxford.md, by name."""
    complete = ("oxford-vlbenchmarks", "oxford-harris-affine", "oxford-dog")
    by_sequence = ("oxford-vlfeat-frames", "oxford-vlbenchmarks-harris-affine", "oxford-dog-17")
    return {name: result_text(name, oxford_tables) for name in complete} | {
        name: result_text(name, lambda result: [sequence_table(result)]) for name in by_sequence
    }


def reproduction() -> dict[str, str]:
    """Return the text of each table of reproduction.md, by name."""
    return {
        "look-alike-lr": markdown(learning_rates(json.loads((RESULTS / "look-alike-lr.json").read_text()))),
        "look-alike-phototour": result_text("look-alike-phototour", lambda result: [phototour_table(result)]),
        "look-alike-romepatches": result_text("look-alike-romepatches", lambda result: [romepatches_table(result)]),
        "look-alike-hpatches": result_text("look-alike-hpatches", hpatches_summary),
        "look-alike-alignment": result_text("look-alike-alignment", lambda result: [tidy_table(result)]),
    }


def learning_rates(content: dict[str, list[dict[str, float]]]) -> Table:
    """Return FPR95 by recipe and learning rate."""
    values = list(dict.fromkeys(row["lr"] for row in content["rows"]))
    recipes = list(dict.fromkeys(str(row["recipe"]) for row in content["rows"]))
    rates = {(row["recipe"], row["lr"]): row["fpr95"] for row in content["rows"]}
    rows = tuple(Row((recipe, *(number(rates[recipe, value], 2) for value in values))) for recipe in recipes)  # type: ignore[index]
    return Table(("recipe", *(f"lr={value:g}" for value in values)), rows, better="less")


def evaluation_speed() -> dict[str, str]:
    """Return the text of each table of evaluation-speed.md, by name."""
    machines = [json.loads(file.read_text()) for file in sorted(SPEED.glob("evaluation-*.json"))]
    return {"speed": markdown(speed(machines)), "fast": markdown(inference_mode(machines))}


def result_text(name: str, make: Callable[[Result], list[Table]]) -> str:
    """Return the tables of a result in docs/results."""
    return "\n\n".join(map(markdown, make(read_result(RESULTS / f"{name}.json"))))


def headline() -> dict[str, str]:
    """Return the table of README.md: shipped models and published baselines, best on Oxford first."""
    images, tasks_result = read_result(RESULTS / "oxford-dog.json"), read_result(RESULTS / "hpatches.json")
    size = {model["name"]: str(model["bytes"]) for model in images.methods}
    patches = cells_by_name(hpatches_summary(tasks_result)[0])
    selected = {*BASELINES, *(name for name in list_models() if "demo" not in name)}
    rows = []
    for name, cells in cells_by_name(sequence_table(images)).items():
        if name in selected:
            tasks = (patches.get(name, {}).get(f"{task}, official", "") for task in ("matching", "retrieval"))
            rows.append(Row((name, size[name], cells["mean"], *tasks)))
    columns = ("descriptor", "bytes", "Oxford", "HPatches matching", "retrieval")
    return {"headline": markdown(Table(columns, tuple(rows)))}


def cells_by_name(table: Table) -> dict[str, dict[str, str]]:
    """Return the cells of a table by the names of row and column."""
    return {row.cells[0]: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}


def study_summaries(study: str) -> list[RunSummary]:
    """Return the runs of a study, best first."""
    return summarise_runs(json.loads((RESULTS / f"study-{study}.json").read_text())["rows"])


def studies() -> dict[str, str]:
    """Return the text of each table of study.md, by name."""
    return {study: markdown(study_table(study_summaries(study))) for study in STUDIES}


def hpatches_summary(result: Result) -> list[Table]:
    """Return the main score of each task by both rules, and matching at each noise level."""
    tasks = [task for task in HEADLINES if any(score["task"] == task for score in result.scores)]
    rows = []
    for model in result.methods:
        own = {"descriptor": model["name"]}
        cells = [mean_score(result, own, HEADLINES[t], {"rule": r}) for t in tasks for r in ("official", "tie-aware")]
        matching = {**own, **HEADLINES["matching"], "rule": "official"}
        noises = [mean_score(result, matching, noise) for noise in NOISE_COLUMNS.values()]
        rows.append((cells[2 * tasks.index("matching")] or 0, (model["name"], [*cells, *noises])))
    columns = [f"{task}, {rule}" for task in tasks for rule in ("official", "tie-aware")]
    return [
        Table(
            ("descriptor", *columns, *(f"matching, {noise}" for noise in NOISE_COLUMNS)),
            tuple(Row((name, *(number(cell, 2) for cell in cells))) for _, (name, cells) in sorted(rows)[::-1]),
        )
    ]


def speed(machines: list[dict[str, dict[str, dict[str, float]]]]) -> Table:
    """Return the seconds of an evaluation at the official size, and the ratio to the official arithmetic."""
    rows = []
    for machine in machines:
        for kind in ("128-d vectors", "256 bits"):
            measured = machine[f"evaluating {kind}"]
            tasks = [f"{measured[t]['doap']:.1f} s ({measured[t]['ratio']:.0f}x)" for t in HEADLINES]
            most = max(measured[t]["peak GB"] for t in HEADLINES)
            total = f"{measured['all']['doap']:.1f} s"
            rows.append(Row((f"{machine['device']}", kind, *tasks, total, f"{most:.1f} GB")))
    return Table(("device", "descriptors", *HEADLINES, "all three", "memory"), tuple(rows), text_columns=2)


def inference_mode(machines: list[dict[str, dict[str, dict[str, float]]]]) -> Table:
    """Return the matching mAP in inference mode and in float32."""
    rows = []
    for machine in machines:
        for name, maps in machine.get("inference mode", {}).items():
            rows.append(Row((str(machine["device"]), name, *(f"{value:.2f}" for value in maps.values()))))
    return Table(("device", "descriptor", "matching mAP %, inference mode", "float32"), tuple(rows), text_columns=2)


def markdown(table: Table) -> str:
    """Return a table in Markdown, with its title above and its note below."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("\n", "<br>") for cell in cells) + " |"

    lines = [
        line(table.columns),
        "|" + "---|" * table.text_columns + "---:|" * (len(table.columns) - table.text_columns),
        *(line(row.cells) for row in table.rows),
    ]
    note = table.note.replace("* ", "\\* ")  # a line that begins with an asterisk is an item of a list
    parts = [f"**{table.title}**" if table.title else "", "\n".join(lines), f"{note}." if note else ""]
    return "\n\n".join(filter(None, parts))


def matching_speed() -> dict[str, str]:
    """Return the text of the table of matching-speed.md."""
    rows = []
    for file in sorted(SPEED.glob("matching-*.json")):
        content = json.loads(file.read_text())
        for row in content["rows"]:
            times = [f"{row[name]:.2g} s ({row[f'{name} / doap']:.2g}x)" if name in row else "" for name in MATCHERS]
            size, descriptors = f"{row['count']:,}", {"floats": "128 floats", "bits": "256 bits"}[row["kind"]]
            share = f"{100 * row['share of peak']:.0f} %"
            rows.append(Row((content["device"], descriptors, size, f"{row['doap']:.2g} s", *times, share)))
    columns = ("device", "descriptors", "of each set", "doap", "OpenCV", "faiss", "product", "of the peak")
    return {"matching": markdown(Table(columns, tuple(rows), text_columns=2))}


PAGES = {
    DOCS.parent / "README.md": headline,
    DOCS / "results-hpatches.md": hpatches,
    DOCS / "results-oxford.md": oxford,
    DOCS / "reproduction.md": reproduction,
    DOCS / "evaluation-speed.md": evaluation_speed,
    DOCS / "matching-speed.md": matching_speed,
    DOCS / "study.md": studies,
}


def filled(path: Path) -> str:
    """Return a page with its tables filled in from the results."""
    page = path.read_text(encoding="utf-8")
    for name, text in PAGES[path]().items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        whole = f"{begin}\n\n{text}\n\n{end}".replace("\\", r"\\")
        page, count = re.subn(f"{begin}.*?{end}", whole, page, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{path}: {count} markers of the table {name}, not one")
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(filled(path), encoding="utf-8")
    for study in STUDIES:
        draw_study(study_summaries(study), f"study {study}", DOCS / "images" / f"study-{study}.png")
