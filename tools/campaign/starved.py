"""Commands without room, memory or permission, and several at once: one line, nothing lost."""

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from campaign.commands import COMMANDS, Command, fresh_copy, prepare, run_to_end, start, stop
from campaign.findings import Finding, PartResult, Say

SMALL, LARGE = "40k", "400m"  # sizes of the disk
MEMORY_BYTES = 2 << 30
NAMES = ("describe", "match --pairs", "data build", "train", "colmap")
EVALUATIONS = 3  # that share a cache of descriptors
SECONDS = 240.0


def starve(seed: int, seconds: float, names: Sequence[str], say: Say) -> PartResult:
    """Starve every command.

    Args:
        seed: Chooses what is damaged in a cache.
        seconds: Limit of time; commands that are not reached are named.
        names: Commands; all if empty.
        say: Shows progress.
    """
    title = "full disk, 2 GB of memory, read-only folder, two at once, damaged cache"
    result = PartResult("starved", title, {"seed": seed})
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="doap-starved-") as folder:
        root = Path(folder)
        prepare(root / "inputs")
        if not names:
            say("descriptor cache")
            _share_cache(root, random.Random(seed), result)
        for command in (command for command in COMMANDS if command.name in (names or NAMES)):
            if time.monotonic() - begin > seconds:
                result.skipped.append(f"{command.name}: no time left")
                continue
            say(command.name)
            _Attack(command, root, result).run()
    return result


@dataclass
class _Attack:
    """Attacks on one command."""

    command: Command
    root: Path
    result: PartResult
    expected: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Run the command as it should be, then starve it."""
        whole = fresh_copy(self.root / "inputs", self.root / "whole")
        (whole / "disk").mkdir()
        run_to_end(self._words(whole), whole, {})
        self.expected = self.command.compared(whole / "disk")
        row: dict[str, object] = {"where": self.command.name, "cases": 0}
        attacks: dict[str, Callable[[Path], str]] = {
            "full disk": self._fill_disk,
            "2 GB of memory": self._limit_memory,
            "read-only": self._forbid_writing,
            "two at once": self._run_twice,
        }
        for name, attack in attacks.items():
            folder = fresh_copy(self.root / "inputs", self.root / "work")
            (folder / "disk").mkdir()
            row[name] = attack(folder)
            row["cases"] = len(row) - 2
        self.result.counts.append(row)

    def _words(self, folder: Path) -> list[str]:
        """Return the arguments with the output in the folder `disk`."""
        words = self.command.continuation(folder / "disk")
        return [f"disk/{word}" if word == self.command.output else word for word in words]

    def _fill_disk(self, folder: Path) -> str:
        with _mounted(["-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder / "disk")], folder / "disk") as error:
            if error:
                return self._skip("full disk", error)
            ended = run_to_end(self._words(folder), folder, {})
            said = self._check_line("full disk", ended, must_fail=True)
            _mount("-o", f"remount,size={LARGE}", str(folder / "disk"))
            self._finish("full disk", folder)
            return said

    def _forbid_writing(self, folder: Path) -> str:
        disk = str(folder / "disk")
        with _mounted(["--bind", disk, disk], folder / "disk") as error:
            error = error or _mount("-o", "remount,ro,bind", disk)
            if error:
                return self._skip("read-only", error)
            return self._check_line("read-only", run_to_end(self._words(folder), folder, {}), must_fail=True)

    def _limit_memory(self, folder: Path) -> str:
        if not shutil.which("prlimit"):
            return self._skip("2 GB of memory", "no program prlimit")
        process = start(self._words(folder), folder, {}, ["prlimit", f"--as={MEMORY_BYTES}"])
        said = self._check_line("2 GB of memory", _ended(process), must_fail=False)
        self._finish("2 GB of memory", folder)
        return said

    def _run_twice(self, folder: Path) -> str:
        processes = [start(self._words(folder), folder, {}) for _ in range(2)]
        said = [self._check_line("two at once", _ended(process), must_fail=False) for process in processes]
        if "result" not in said:
            self._find("two at once", "none of two commands succeeded")
        self._finish("two at once", folder)
        return " and ".join(said)

    def _check_line(self, attack: str, ended: "subprocess.CompletedProcess[str]", must_fail: bool) -> str:
        """Return what a command did, and record a traceback or a missing line."""
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        if ended.returncode == 0:
            if must_fail:
                self._find(attack, "the command succeeded")
            return "result"
        if any(line.startswith("OpenBLAS error: Memory") for line in lines) and "Traceback" not in ended.stderr:
            return "one line of OpenBLAS"
        if "Traceback" in ended.stderr or not lines or not any(line.startswith("doap: ") for line in lines[-1:]):
            last = lines[-1] if lines else f"status {ended.returncode} without a word"
            self._find(attack, f"not one line: {last[:300]}")
            return "finding"
        return "one line"

    def _finish(self, attack: str, folder: Path) -> None:
        """Run the command to its end, with room and alone; its output must be that of a whole run."""
        ended = run_to_end(self._words(folder), folder, {})
        found = self.command.compared(folder / "disk")
        if found != self.expected:
            different = sorted(name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name))
            lines = ended.stderr.strip().splitlines() or ["no error"]
            self._find(attack, f"{different[0]} differs from a whole run's ({lines[-1][:200]})")

    def _skip(self, attack: str, reason: str) -> str:
        self.result.skipped.append(f"{self.command.name}, {attack}: {reason}")
        return "skipped"

    def _find(self, attack: str, what: str) -> None:
        replay = f"python -m campaign starved --commands '{self.command.name}'"
        self.result.findings.append(Finding(f"{self.command.name}, {attack}", what, replay))


def _share_cache(root: Path, generator: random.Random, result: PartResult) -> None:
    """Evaluate in several processes with one cache of descriptors, whose files are damaged between rounds."""
    folder = fresh_copy(root / "inputs", root / "work")
    words = ["eval", "romepatches", "doap-demo-128", "--data", "data/romepatches", "--device", "cpu", "--json"]
    run_to_end([*words, "whole.json"], folder, {"DOAP_CACHE": str(folder / "other")})
    expected = _scores(folder / "whole.json")
    done = 0
    for round_ in range(2):
        processes = [start([*words, f"{round_}-{number}.json"], folder, {}) for number in range(EVALUATIONS)]
        for number, process in enumerate(processes):
            ended = _ended(process)
            done += 1
            if ended.returncode or expected is None or _scores(folder / f"{round_}-{number}.json") != expected:
                last = (ended.stderr.strip().splitlines() or ["other scores"])[-1]
                result.findings.append(Finding("descriptor cache", last[:300], "python -m campaign starved"))
        for file in (folder / "cache" / "descriptors").glob("*.npy"):
            content = bytearray(file.read_bytes())
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
            file.write_bytes(content)
    result.counts.append({"where": "descriptor cache", "cases": done})


def _scores(file: Path) -> object:
    return json.loads(file.read_text())["scores"] if file.exists() else None


def _ended(process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        stop(process)
        output, errors = process.communicate()
        errors += f"\nstopped after {SECONDS:g} seconds"
    return subprocess.CompletedProcess([], process.returncode, output, errors)


@contextmanager
def _mounted(words: Sequence[str], folder: Path) -> Iterator[str]:
    """Mount for the block; yields why this is not possible, or ''."""
    error = "needs root, to mount a disk" if os.geteuid() else _mount(*words)
    try:
        yield error
    finally:
        if not error:
            subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def _mount(*words: str) -> str:
    """Mount, and return the error, '' for none."""
    ended = subprocess.run(["mount", *words], check=False, capture_output=True, text=True)
    return ended.stderr.strip() if ended.returncode else ""
