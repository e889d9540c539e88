"""A cache of descriptors that several processes share and that is damaged."""

import json
import random
import time
from pathlib import Path

from campaign.findings import Finding, PartResult
from campaign.running.commands import fresh_copy
from campaign.running.preloaded import SECONDS, Preloaded

PROCESSES = 10  # that share a cache
ROUNDS = 4
DAMAGE_SECONDS = 0.05  # between two damages while the processes run

_WORDS = ("eval", "romepatches", "doap-demo-128", "--data", "data/romepatches", "--device", "cpu", "--json")


def share_cache(root: Path, server: Preloaded, generator: random.Random, result: PartResult) -> None:
    """Evaluate in ten processes with one cache, whose files are damaged between rounds and while they run."""
    folder = fresh_copy(root / "inputs", root / "work")
    server.run([*_WORDS, "whole.json"], folder, {"DOAP_CACHE": str(folder / "other")})
    expected = _scores(folder / "whole.json")
    done = damages = 0
    for round_ in range(ROUNDS):
        names = [f"{round_}-{number}.json" for number in range(PROCESSES)]
        groups = [server.start([*_WORDS, name], folder, {}) for name in names]
        damages += _damage_while_running(groups, folder, generator)
        for name, group in zip(names, groups, strict=True):
            ended = server.finish(group, folder)
            done += 1
            if expected is None or _scores(folder / name) != expected:
                what = ended.last_line if ended.status else "other scores"
                result.findings.append(Finding("descriptor cache", what, "python -m campaign starved"))
        damages += sum(_damage(file, generator, in_place=True) for file in _files(folder))
    result.counts.append({"where": "descriptor cache", "cases": done, "damaged files": damages})


def _damage_while_running(groups: list[int], folder: Path, generator: random.Random) -> int:
    """Replace files of the cache until the processes have ended; return how often."""
    damages, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end and any(map(_is_running, groups)):
        time.sleep(DAMAGE_SECONDS)
        if files := _files(folder):
            damages += _damage(generator.choice(files), generator, in_place=False)
    return damages


def _is_running(group: int) -> bool:
    """Return whether a process has not ended; one that has, and is not waited for, has no command line."""
    try:
        return bool(Path(f"/proc/{group}/cmdline").read_bytes())
    except OSError:
        return False


def _files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "descriptors").glob("[!.]*.npy"))


def _damage(file: Path, generator: random.Random, in_place: bool) -> int:
    """Flip a bit of a file, shorten it or remove it; not in place while others may have mapped it."""
    try:
        content = bytearray(file.read_bytes())
        kind = generator.choice(("flip", "flip", "shorten", "remove"))
        if kind == "remove" or not content:
            file.unlink()
            return 1
        position = generator.randrange(len(content))
        if kind == "shorten":
            del content[position:]
        else:
            content[position] ^= 1 << generator.randrange(8)
        target = file if in_place else file.with_name(".damaged")
        target.write_bytes(content)
        target.replace(file)
    except FileNotFoundError:  # removed by a process
        return 0
    return 1


def _scores(file: Path) -> object:
    return json.loads(file.read_text())["scores"] if file.exists() else None
