"""Run the commands of docs/tutorial.md and write what they print, and their pictures, into the page.

    python tools/tutorial.py FOLDER [--photos PHOTOS --held-out PHOTOS]

FOLDER is created with photos/, held-out/, left.jpg and right.jpg: photos that come with scikit-image, scikit-learn and
matplotlib. With folders of other photos the page is printed instead.
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import matplotlib
from PIL import Image

from doap.demo import photos

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
IMAGES = PAGE.parent / "images"
PICTURES = {
    "sheet.png": "tutorial-sheet.png",
    "runs/mine/training.png": "tutorial-training.png",
}
MATCHES = "tutorial-matches.webp"  # the pictures of both methods, one above the other
MATCHES_WIDTH = 900  # pixels

# Six photos are kept aside, as many as a test needs for a significant difference.
ROCKET = next(path for path in photos.TRAIN if path.stem == "rocket")
HOPPER = Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
TRAIN = (*(path for path in photos.TRAIN if path != ROCKET), ROCKET.parent / "cell.png")
HELD_OUT = (*photos.TEST, ROCKET, HOPPER)

# A block of commands, and the block of output that may follow it.
BLOCK = re.compile(r"^```\n(?P<commands>doap .*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
TIMES = re.compile(r"(?<=<!-- times -->\n\n).*?(?=\n\n<!-- /times -->)", re.DOTALL)
PROGRESS = re.compile(r"^(.* (left|spent).*|[\w ]+: [\d,]+ of [\d,]+)\n", re.MULTILINE)
DETAILS = re.compile(r" --(set|data) \S+")  # of a command, left out in the table of times


def copy_photos(paths: tuple[Path, ...], folder: Path) -> None:
    """Write photos as JPEG files into a folder; those of the stereo pair as left.jpg and right.jpg."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        Image.open(path).convert("RGB").save(folder / f"{path.stem.removeprefix('motorcycle_')}.jpg", quality=95)


def list_commands(page: str) -> list[str]:
    """Return the commands of a page, in order."""
    return [line for block in BLOCK.finditer(page) for line in block["commands"].splitlines()]


def run_command(command: str, folder: Path) -> tuple[str, str]:
    """Run a command in a folder; return what it prints, without progress, and its row in the table of times."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "DOAP_CACHE": str(folder / "cache")}
    ended = subprocess.run(
        command, shell=True, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    spent, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{spent:6.1f} s, {processor:6.1f} s of a processor  {command}", flush=True)
    if ended.returncode:
        raise SystemExit(ended.stdout)
    row = f"| `{DETAILS.sub('', command)}` | {processor:.0f} s | {spent:.0f} s |"
    printed = PROGRESS.sub("", ended.stdout).replace(f"{folder}/", "")
    return re.sub(r" +$", "", printed, flags=re.MULTILINE), row


def run_page(page: str, folder: Path) -> str:
    """Run all commands of a page in a folder; return the page with their output and times."""
    rows = ["| command | processor | clock |", "|---|---:|---:|"]

    def run_block(block: re.Match[str]) -> str:
        ended = [run_command(line, folder) for line in block["commands"].splitlines()]
        rows.extend(row for _, row in ended)
        if block["output"] is None:
            return block.group()
        printed = "".join(text for text, _ in ended)
        return f"```\n{block['commands']}```\n\n```text\n{printed.strip()}\n```\n"

    done = BLOCK.sub(run_block, page)
    return TIMES.sub(lambda _: "\n".join(rows), done)


def join_pictures(paths: list[Path], target: Path) -> None:
    """Write pictures of equal width one above the other."""
    pictures = [Image.open(path).convert("RGB") for path in paths]
    joined = Image.new("RGB", (pictures[0].width, sum(picture.height for picture in pictures)), "white")
    top = 0
    for picture in pictures:
        joined.paste(picture, (0, top))
        top += picture.height
    joined.thumbnail((MATCHES_WIDTH, 10 * MATCHES_WIDTH), Image.Resampling.LANCZOS)
    joined.save(target, quality=80, method=6)


def main() -> None:
    """Run the tutorial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--held-out", type=Path)
    options = parser.parse_args()
    folder = options.folder.resolve()
    own = options.photos and options.held_out
    if own:
        shutil.copytree(options.photos, folder / "photos")
        shutil.copytree(options.held_out, folder / "held-out")
    else:
        copy_photos(TRAIN, folder / "photos")
        copy_photos(HELD_OUT, folder / "held-out")
    copy_photos(photos.STEREO, folder)
    page = run_page(PAGE.read_text(encoding="utf-8"), folder)
    if own:
        print(page)
        return
    PAGE.write_text(page, encoding="utf-8")
    for source, target in PICTURES.items():
        shutil.copy(folder / source, IMAGES / target)
    join_pictures([folder / "sift.png", folder / "matches.png"], IMAGES / MATCHES)


if __name__ == "__main__":
    main()
