"""`doap eval`: judging descriptors, one benchmark a verb."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import doap
from doap.cli.console import choose_device, console, counting_bar, say, score_table
from doap.errors import DoapError
from doap.evaluation import warped as benchmark
from doap.evaluation.describers import HANDCRAFTED, describer
from doap.evaluation.figures import draw_bars
from doap.files import write_text
from doap.photos.images import find_photos, read_grey

app = typer.Typer(no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Judge descriptors: all of them in one run, on the same keypoints."""


@app.command(epilog="Example: doap eval warped photos/ --models doap-demo-128,sift,rootsift --json scores.json")
def warped(
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTOS…", help="Pictures, or folders of them.")],
    models: Annotated[
        str | None,
        typer.Option(
            help="Separated by commas: a shipped model, a path, sift, rootsift, or a peer (docs/peers.md). "
            "The shipped ones and SIFT by default."
        ),
    ] = None,
    copies: Annotated[int, typer.Option(min=1, help="Warped copies of each photo.")] = 5,
    keypoints: Annotated[int, typer.Option(min=1, help="Strongest keypoints of each image.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the copies.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write configuration and all scores here.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the table here.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Match photos with copies of themselves under known homographies and light changes.

    Every descriptor describes the same keypoints; each keypoint of the photo proposes its nearest neighbour
    in the copy, and AP is computed over the proposals ranked by distance.
    """
    names = models.split(",") if models else [*doap.list_models(), *HANDCRAFTED]
    chosen = choose_device(device)
    describers = [describer(name, chosen) for name in names]
    pairs, faults = [], []
    found = find_photos(photos)
    with counting_bar() as bar:
        for number, path in enumerate(bar.track(found, description="making copies")):
            try:
                pairs += benchmark.make_pairs(str(path), read_grey(path), copies, keypoints, seed + number)
            except DoapError as fault:
                faults.append(str(fault))
        if not pairs:
            raise DoapError("; ".join(faults))
        task = bar.add_task("matching", total=len(pairs) * len(describers))
        scores = benchmark.evaluate(pairs, describers, lambda: bar.advance(task))
    rows = benchmark.summarise(scores)
    console.print(score_table(rows))
    say(f"{len(pairs)} pairs of {len(found) - len(faults)} photos, up to {keypoints} keypoints an image")
    for line in faults:
        say(f"left out: {line}", style="yellow")
    if json_file:
        settings = {"benchmark": "warped", "copies": copies, "keypoints": keypoints, "seed": seed}
        content = {"doap": doap.__version__, **settings, "summary": rows, "scores": [asdict(s) for s in scores]}
        write_text(json_file, json.dumps(content, indent=1) + "\n")
    if figure:
        draw_bars(rows, figure)
