"""Run the commands of docs/tutorial.md and write what they print, and their pictures, into the page.

    python tools/tutorial.py FOLDER [--photos PHOTOS --held-out PHOTOS]

FOLDER is created with photos/, held-out/, left.jpg and right.jpg: photos that come with scikit-image and scikit-learn.
With folders of other photos the page is printed instead.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

from doap.demo import photos

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
IMAGES = PAGE.parent / "images"
PICTURES = {
    "sheet.png": "tutorial-sheet.png",
    "runs/mine/training.png": "tutorial-training.png",
}
# A block of commands, and the block of output that may follow it.
BLOCK = re.compile(r"^```\n(?P<commands>doap .*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
PROGRESS = re.compile(r"^.* (left|spent).*\n", re.MULTILINE)


def copy_photos(paths: tuple[Path, ...], folder: Path) -> None:
    """Write photos as JPEG files into a folder; those of the stereo pair as left.jpg and right.jpg."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        Image.open(path).convert("RGB").save(folder / f"{path.stem.removeprefix('motorcycle_')}.jpg", quality=95)


def list_commands(page: str) -> list[str]:
    """Return the commands of a page, in order."""
    return [line for block in BLOCK.finditer(page) for line in block["commands"].splitlines()]


def run_command(command: str, folder: Path) -> str:
    """Run a command in a folder; return what it prints, without progress."""
    start = time.monotonic()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "DOAP_CACHE": str(folder / "cache")}
    ended = subprocess.run(
        command, shell=True, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(f"{time.monotonic() - start:6.1f} s  {command}", flush=True)
    if ended.returncode:
        raise SystemExit(ended.stdout)
    return PROGRESS.sub("", ended.stdout).replace(f"{folder}/", "")


def run_page(page: str, folder: Path) -> str:
    """Run all commands of a page in a folder; return the page with their output."""

    def run_block(block: re.Match[str]) -> str:
        printed = "".join(run_command(line, folder) for line in block["commands"].splitlines())
        if block["output"] is None:
            return block.group()
        return f"```\n{block['commands']}```\n\n```text\n{printed.strip()}\n```\n"

    return BLOCK.sub(run_block, page)


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
        copy_photos(photos.TRAIN, folder / "photos")
        copy_photos(photos.TEST, folder / "held-out")
    copy_photos(photos.STEREO, folder)
    page = run_page(PAGE.read_text(encoding="utf-8"), folder)
    if own:
        print(page)
        return
    PAGE.write_text(page, encoding="utf-8")
    for source, target in PICTURES.items():
        shutil.copy(folder / source, IMAGES / target)


if __name__ == "__main__":
    main()
