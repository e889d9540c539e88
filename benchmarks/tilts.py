"""Compare frames on photos and views of them from the side: mAP, and share of correct homographies, by tilt and turn.

    python benchmarks/tilts.py photos/ --methods detected baumberg kornia learned affnet=runs/affnet/weights.safetensors

Views are tilted about a random axis each, turned by 0, 45 and 90 degrees, and their light is changed a little. All
methods correct the frames of the same keypoints, and the correspondences are those of the detected frames. A
homography is correct if it maps all corners of the photo to within 5 pixels. Writes a JSON file and a figure beside it.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from doap.evaluation.tilts.pairs import TiltScore, TiltTask, score_photo
from doap.images.reading import find_photos
from doap.parallel import open_engine
from machine import device_name


def mean_rows(scores: Sequence[TiltScore]) -> list[dict[str, str | float]]:
    """Average the scores of each method by tilt, over all turns and by turn; in percent."""
    rows: list[dict[str, str | float]] = []
    for method in dict.fromkeys(score.method for score in scores):
        for tilt in sorted({score.tilt for score in scores}):
            own = [score for score in scores if score.method == method and score.tilt == tilt]
            for turn in (None, *sorted({score.turn for score in own})):
                part = [score for score in own if turn is None or score.turn == turn]
                rows.append(
                    {
                        "method": method,
                        "tilt": tilt,
                        "turn": "all" if turn is None else turn,
                        "mAP": round(100 * float(np.mean([score.ap for score in part])), 2),
                        "solved": round(100 * float(np.mean([score.is_solved for score in part])), 1),
                        "pairs": len(part),
                    }
                )
    return rows


def print_table(rows: Sequence[dict[str, str | float]]) -> None:
    """Print mAP and share of correct homographies by method and tilt, as Markdown."""
    overall = [row for row in rows if row["turn"] == "all"]
    tilts = sorted({float(row["tilt"]) for row in overall})
    print("| frames | " + " | ".join(f"tilt {tilt:g}" for tilt in tilts) + " |")
    print("|---|" + "---:|" * len(tilts))
    for method in dict.fromkeys(row["method"] for row in overall):
        cells = [f"{row['mAP']:.1f} / {row['solved']:.0f} %" for row in overall if row["method"] == method]
        print(f"| {method} | " + " | ".join(cells) + " |")


def draw(rows: Sequence[dict[str, str | float]], path: Path) -> None:
    """Draw both curves over the tilt."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    overall = [row for row in rows if row["turn"] == "all"]
    for axis, key, label in zip(axes, ("mAP", "solved"), ("mAP %", "correct homographies %"), strict=True):
        for method in dict.fromkeys(str(row["method"]) for row in overall):
            own = [row for row in overall if row["method"] == method]
            axis.plot([row["tilt"] for row in own], [row[key] for row in own], marker="o", label=method)
        axis.set(xlabel="tilt", ylabel=label, ylim=(0, 102), xticks=sorted({float(row["tilt"]) for row in overall}))
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Measure, print the table, write the result and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="+", help="photos, or folders of photos")
    parser.add_argument("--methods", nargs="+", default=["detected", "baumberg", "kornia", "learned"], metavar="METHOD")
    parser.add_argument("--model", default="doap-128")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, help="number of photos, sampled at random; default all")
    parser.add_argument("--tilts", type=float, nargs="+", default=[1, 2, 4, 6, 8])
    parser.add_argument("--turns", type=float, nargs="+", default=[0, 45, 90])
    parser.add_argument("--keypoints", type=int, default=1000)
    parser.add_argument("--size", type=int, default=640, help="longer side of the photos in pixels")
    parser.add_argument("--detector", default="dog")
    parser.add_argument("--workers", type=int)
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/results/tilts.json"))
    options = parser.parse_args()
    names = {text.rpartition("=")[2]: text.partition("=")[0] for text in options.methods}
    paths = np.random.default_rng(0).permutation(np.array(find_photos(options.photos), object))[: options.count]
    settings = {key: getattr(options, key) for key in ("model", "device", "keypoints", "size", "detector")}
    tilts, turns = tuple(map(float, options.tilts)), tuple(map(float, options.turns))
    tasks = [
        TiltTask(path, seed, tuple(names), tilts=tilts, turns=turns, **settings) for seed, path in enumerate(paths)
    ]
    scores: list[TiltScore] = []
    with open_engine("local", options.workers) as engine:
        for done, part in enumerate(engine.map(score_photo, tasks), 1):
            scores += part
            print(f"photo {done} of {len(tasks)}", flush=True)
    rows = [{**row, "method": names[str(row["method"])]} for row in mean_rows(scores)]
    print_table(rows)
    used = sorted({score.photo for score in scores})
    result = {"machine": device_name("cuda" if options.device.startswith("cuda") else "cpu"), **settings}
    result |= {"photos": len(used), "rows": rows, "pairs": [{**asdict(s), "method": names[s.method]} for s in scores]}
    options.output.write_text(json.dumps(result) + "\n")
    draw(rows, options.output.with_suffix(".png"))
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
