"""Kill commands at random moments, run them to their end, and compare their output with that of a whole run."""

import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from campaign.findings import Finding, PartResult, Say
from campaign.running.commands import COMMANDS, Command, fresh_copy, prepare, run_to_end, served
from campaign.running.preloaded import Preloaded, preloaded

ROUNDS = 8  # kills of one output before it is run to its end
MIN_KILLS = 3  # of each command, however slow the machine is


def kill(kills: int, seed: int, seconds: float, names: Sequence[str], say: Say) -> PartResult:
    """Kill every command.

    Args:
        kills: Number of kills of each command.
        seed: Moments are the same for the same seed, as shares of the duration of a whole run.
        seconds: Limit of time, of which every command has its share; commands that are not reached are named.
        names: Commands; all if empty.
        say: Shows progress.
    """
    result = PartResult("kills", "kill -9 at random moments, then run to the end", {"kills": kills, "seed": seed})
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="doap-kills-") as folder:
        root = Path(folder)
        prepare(root / "inputs")
        with served(root / "inputs" / "served") as environment, preloaded() as server:
            commands = [command for command in COMMANDS if not names or command.name in names]
            for number, command in enumerate(commands, 1):
                if time.monotonic() - begin > seconds:
                    result.skipped.append(f"{command.name}: no time left")
                    continue
                say(command.name)
                attack = _Attack(command, root, server, environment, random.Random(f"{seed} {command.name}"), result)
                done = attack.run(kills, begin + seconds * number / len(commands))
                say(f"{done} kills, {len(result.findings)} findings")
    return result


@dataclass
class _Attack:
    """Kills of one command."""

    command: Command
    root: Path
    server: Preloaded
    environment: Mapping[str, str]
    generator: random.Random
    result: PartResult
    duration: float = 0.0
    expected: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    def run(self, kills: int, deadline: float) -> int:
        """Run the command once, then kill it, up to `ROUNDS` times in a row; return the number of kills."""
        whole = fresh_copy(self.root / "inputs", self.root / "whole")
        ended = run_to_end(self.command.words, whole, self.environment)
        self.expected, self.hidden = self.command.compared(whole), _hidden(whole)
        if ended.returncode or not self.expected:
            self._find(f"a whole run failed: {ended.stderr.strip()[-300:]}")
            return 0
        for _ in range(2):  # the first one imports
            whole = fresh_copy(self.root / "inputs", self.root / "whole")
            begin = time.monotonic()
            self._run_to_end(whole, "a second whole run")
            self.duration = time.monotonic() - begin
        done = ends = late = 0
        while done < min(kills, MIN_KILLS) or (done < kills and time.monotonic() < deadline):
            folder = fresh_copy(self.root / "inputs", self.root / "work")
            for _ in range(min(self.generator.choice((1, 2, ROUNDS)), kills - done)):
                done += 1
                if not self._kill(folder):
                    late += 1
                    break
            self._finish(folder)
            ends += 1
        self.result.counts.append(
            {"where": self.command.name, "cases": done, "ended before": late, "compared": ends,
             "files": len(self.expected), "seconds of a run": round(self.duration, 1)}
        )  # fmt: skip
        return done

    def _kill(self, folder: Path) -> bool:
        """Start the command and kill it; return False if it had ended before."""
        group = self._start(folder)
        ended = self.server.wait(group, folder, self.generator.random() * self.duration)
        self.server.kill(group, folder)
        if left := _processes_of(folder):
            self._find(f"processes are left after a kill of their group: {left}")
        return ended is None

    def _start(self, folder: Path) -> int:
        words = self.command.continuation(folder)
        return self.server.start(words, folder, self.environment, self.command.processes)

    def _finish(self, folder: Path) -> None:
        """Run the command to its end and compare; a run that had ended may say so."""
        wrong = {
            name
            for name, value in self.command.compared(folder).items()
            if value != self.expected.get(name) and not name.startswith(self.command.growing)
        }
        if wrong:
            self._find(f"a half-written {sorted(wrong)[0]} after a kill")
        self._run_to_end(folder, "a run after a kill")
        if leftovers := _hidden(folder) - self.hidden:
            self._find(f"a leftover of a killed run: {sorted(leftovers)[0]}")

    def _run_to_end(self, folder: Path, what: str) -> None:
        ended = self.server.finish(self._start(folder), folder)
        if "Traceback" in ended.errors:
            self._find(f"{what} ends with a traceback: {ended.last_line}")
        if different := self.command.differences(folder, self.expected):
            self._find(
                f"{what} differs from a whole run in {len(different)} outputs, {different[0]}: {ended.last_line}"
            )

    def _find(self, what: str) -> None:
        replay = f"python -m campaign kills --commands '{self.command.name}' --seed {self.result.settings['seed']}"
        self.result.findings.append(Finding(self.command.name, what, replay))


def _processes_of(folder: Path) -> list[int]:
    """Return the processes that work in a folder; a killed one takes a moment to disappear."""
    end = time.monotonic() + 2
    while True:
        left = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink() == folder:
                    left.append(int(process.name))
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.01)


def _hidden(folder: Path) -> set[str]:
    """Return the hidden files and folders in a work folder, as relative paths.

    Without empty files of locks, and without the cache, whose least recently used files are deleted.
    """
    names = {path.relative_to(folder).as_posix() for path in folder.rglob(".*") if not path.name.endswith("lock")}
    return {name for name in names if not name.startswith("cache/")}
