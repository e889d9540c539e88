"""Commands without room, memory or permission, with a moved clock, and several at once: one line, nothing lost."""

import functools
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from campaign.findings import Finding, PartResult, Say
from campaign.running.clock import set_times
from campaign.running.commands import COMMANDS, Command, fresh_copy, prepare, served, start
from campaign.running.mounts import PAGE_BYTES, mount, mounted, pages
from campaign.running.preloaded import SECONDS, Ended, Preloaded, preloaded
from campaign.shared_cache import share_cache

LARGE = "400m"  # size of a disk with room
MEMORY_BYTES = 2 << 30


def starve(seed: int, seconds: float, disks: int, names: Sequence[str], say: Say) -> PartResult:
    """Starve every command.

    Args:
        seed: Chooses the sizes of full disks, times, and what is damaged in a cache.
        seconds: Limit of time; commands that are not reached are named.
        disks: Sizes of the disk for each command, all smaller than its output.
        names: Commands; all if empty.
        say: Shows progress.
    """
    title = "full disk, 2 GB of memory, read-only folder, moved clock, two at once, damaged cache"
    result = PartResult("starved", title, {"seed": seed, "disks": disks})
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="doap-starved-") as folder, ExitStack() as stack:
        root, generator = Path(folder), random.Random(seed)
        prepare(root / "inputs")
        environment = stack.enter_context(served(root / "inputs" / "served"))
        server = stack.enter_context(preloaded())
        if not names:
            say("descriptor cache")
            share_cache(root, server, generator, result)
        for command in (command for command in COMMANDS if not names or command.name in names):
            if time.monotonic() - begin > seconds:
                result.skipped.append(f"{command.name}: no time left")
                continue
            say(command.name)
            _Attack(command, root, server, environment, generator, result, disks).run()
    return result


@dataclass
class _Attack:
    """Attacks on one command, whose output is in the folder `disk` of a work folder."""

    command: Command
    root: Path
    server: Preloaded
    environment: Mapping[str, str]
    generator: random.Random
    result: PartResult
    disks: int
    duration: float = 0.0
    expected: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Run the command as it should be, then starve it."""
        whole = self._work_folder("whole")
        self._run(whole)  # imports
        whole = self._work_folder("whole")
        begin = time.monotonic()
        ended = self._run(whole)
        self.duration = time.monotonic() - begin
        self.expected = self.command.compared(whole / "disk")
        if ended.status or not self.expected:
            self._find("whole run", ended.last_line)
            return
        row: dict[str, object] = {"where": self.command.name, "cases": 0}
        sizes = self._sizes(pages(whole / "disk"))
        attacks: dict[str, list[Callable[[Path], str]]] = {
            "full disk": [functools.partial(self._fill_disk, size=size) for size in sizes],
            "2 GB of memory": [self._limit_memory],
            "read-only": [self._forbid_writing],
            "two at once": [self._run_twice],
            "moved clock": [self._move_clock],
        }
        cases = 0
        for name, tries in attacks.items():
            outcomes = [attack(self._work_folder("work")) for attack in tries]
            row[name] = ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))
            cases += sum(word != "skipped" for word in outcomes)
        row["cases"] = cases
        self.result.counts.append(row)

    def _sizes(self, whole: int) -> list[int]:
        """Return sizes of disks in pages, spread over what the output takes."""
        fractions = [(number + self.generator.random()) / self.disks for number in range(self.disks)]
        return [max(1, int(fraction * whole)) for fraction in fractions]

    def _work_folder(self, name: str) -> Path:
        folder = fresh_copy(self.root / "inputs", self.root / name)
        (folder / "disk").mkdir()
        return folder

    def _words(self, folder: Path) -> list[str]:
        """Return the arguments with the output in the folder `disk`."""
        words = self.command.continuation(folder / "disk")
        return [f"disk/{word}" if word == self.command.output else word for word in words]

    def _run(self, folder: Path) -> Ended:
        return self.server.finish(self._start(folder), folder)

    def _start(self, folder: Path, variables: Mapping[str, str] = MappingProxyType({})) -> int:
        environment = {**self.environment, **variables}
        return self.server.start(self._words(folder), folder, environment, self.command.processes)

    def _fill_disk(self, folder: Path, size: int) -> str:
        words = ["-t", "tmpfs", "-o", f"size={size * PAGE_BYTES}", "tmpfs", str(folder / "disk")]
        with mounted(words, folder / "disk") as error:
            if error:
                return self._skip("full disk", error)
            outcome = self._check("full disk", folder, self._run(folder))
            mount("-o", f"remount,size={LARGE}", str(folder / "disk"))
            self._finish("full disk", folder)
            return outcome

    def _forbid_writing(self, folder: Path) -> str:
        disk = str(folder / "disk")
        with mounted(["--bind", disk, disk], folder / "disk") as error:
            error = error or mount("-o", "remount,ro,bind", disk)
            if error:
                return self._skip("read-only", error)
            return self._check("read-only", folder, self._run(folder))

    def _limit_memory(self, folder: Path) -> str:
        if not shutil.which("prlimit"):
            return self._skip("2 GB of memory", "no program prlimit")
        process = start(self._words(folder), folder, self.environment, ["prlimit", f"--as={MEMORY_BYTES}"])
        try:
            _, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
        outcome = self._check("2 GB of memory", folder, Ended(process.returncode, errors))
        self._finish("2 GB of memory", folder)
        return outcome

    def _run_twice(self, folder: Path) -> str:
        groups = [self._start(folder) for _ in range(2)]
        ended = [self.server.finish(group, folder) for group in groups]
        outcomes = [self._check("two at once", folder, one) for one in ended]
        if "result" not in outcomes:
            self._find("two at once", "none of two commands succeeded")
        self._finish("two at once", folder)
        return " and ".join(outcomes)

    def _move_clock(self, folder: Path) -> str:
        """Run, kill and run again with a clock that jumps, and files of the past and the future."""
        set_times(folder, self.generator)
        whole = fresh_copy(folder, self.root / "whole")
        self._run(whole)
        expected = self.command.compared(whole / "disk")
        clock = {"DOAP_CAMPAIGN_CLOCK": str(self.generator.random())}
        group = self._start(folder, clock)
        self.server.wait(group, folder, self.generator.random() * self.duration)
        self.server.kill(group, folder)
        set_times(folder / "disk", self.generator)
        set_times(folder / "cache", self.generator)
        ended = self.server.finish(self._start(folder, clock), folder)
        if different := self.command.differences(folder / "disk", expected):
            self._find("moved clock", f"{different[0]} differs: {ended.last_line}")
            return "finding"
        return "result"

    def _check(self, attack: str, folder: Path, ended: Ended) -> str:
        """Return what a command did; record a traceback, a missing line, or another output than a whole run's."""
        if ended.status == 0:
            if different := self.command.differences(folder / "disk", self.expected):
                self._find(attack, f"the command succeeded, but {different[0]} differs")
                return "finding"
            return "result"
        if "Traceback" not in ended.errors and "\nOpenBLAS error: Memory" in f"\n{ended.errors}":
            return "one line of OpenBLAS"
        if "Traceback" in ended.errors or not ended.last_line.startswith("doap: "):
            self._find(attack, f"not one line: {ended.last_line} (status {ended.status})")
            return "finding"
        return "one line"

    def _finish(self, attack: str, folder: Path) -> None:
        """Run the command to its end, with room and alone; its output must be that of a whole run."""
        ended = self._run(folder)
        if different := self.command.differences(folder / "disk", self.expected):
            self._find(attack, f"{different[0]} differs from a whole run's: {ended.last_line}")

    def _skip(self, attack: str, reason: str) -> str:
        self.result.skipped.append(f"{self.command.name}, {attack}: {reason}")
        return "skipped"

    def _find(self, attack: str, what: str) -> None:
        replay = f"python -m campaign starved --commands '{self.command.name}'"
        self.result.findings.append(Finding(f"{self.command.name}, {attack}", what, replay))
