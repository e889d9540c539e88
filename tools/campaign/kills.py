"""Kill commands at random moments, run them to their end, and compare their output with that of a whole run."""

import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from campaign.commands import COMMANDS, Command, fresh_copy, prepare, run_to_end, start, stop
from campaign.findings import Finding, PartResult, Say
from support.local_server import serving
from support.sets.hostile_archives import zipped

ROUNDS = 8  # kills of one output before it is run to its end


def kill(kills: int, seed: int, seconds: float, names: Sequence[str], say: Say) -> PartResult:
    """Kill every command.

    Args:
        kills: Number of kills of each command.
        seed: Moments are the same for the same seed, as shares of the duration of a whole run.
        seconds: Limit of time; commands that are not reached are named.
        names: Commands; all if empty.
        say: Shows progress.
    """
    result = PartResult("kills", "kill -9 at random moments, then run to the end", {"kills": kills, "seed": seed})
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="doap-kills-") as folder:
        root = Path(folder)
        prepare(root / "inputs")
        with _served(root / "inputs" / "served") as environment:
            for command in (command for command in COMMANDS if not names or command.name in names):
                if time.monotonic() - begin > seconds:
                    result.skipped.append(f"{command.name}: no time left")
                    continue
                say(command.name)
                attack = _Attack(command, root, environment, random.Random(f"{seed} {command.name}"), result)
                attack.run(kills, begin + seconds)
    return result


@contextmanager
def _served(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a small copy of Phototour and yield the variables that lead to it."""
    content = {f"release/{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}
    with serving() as site:
        yield {"DOAP_CAMPAIGN_URL": site.put("liberty.zip", zipped(content)), "no_proxy": "*"}


class _Attack:
    """Kills of one command."""

    def __init__(
        self, command: Command, root: Path, environment: Mapping[str, str], generator: random.Random, result: PartResult
    ) -> None:
        self.command, self.root, self.environment = command, root, environment
        self.generator, self.result = generator, result
        self.duration, self.expected = 0.0, dict[str, str]()

    def run(self, kills: int, deadline: float) -> None:
        """Run the command once, then kill it, up to `ROUNDS` times in a row."""
        begin = time.monotonic()
        whole = fresh_copy(self.root / "inputs", self.root / "whole")
        ended = run_to_end(self.command.words, whole, self.environment)
        self.duration, self.expected = time.monotonic() - begin, self.command.compared(whole)
        if ended.returncode or not self.expected:
            self._find(f"a whole run failed: {ended.stderr.strip()[-300:]}")
            return
        done = ends = late = 0
        while done < kills and time.monotonic() < deadline:
            folder = fresh_copy(self.root / "inputs", self.root / "work")
            for _ in range(min(self.generator.choice((1, 2, ROUNDS)), kills - done)):
                done += 1
                if not self._kill(folder):
                    late += 1
                    break
            ends += self._finish(folder)
        self.result.counts.append(
            {"where": self.command.name, "cases": done, "ended before": late, "compared": ends,
             "files": len(self.expected), "seconds of a run": round(self.duration, 1)}
        )  # fmt: skip

    def _kill(self, folder: Path) -> bool:
        """Start the command and kill it; return False if it had ended before."""
        process = start(self.command.continuation(folder), folder, self.environment)
        try:
            process.wait(self.generator.uniform(0.1, 1) * self.duration)
        except subprocess.TimeoutExpired:
            return True
        finally:
            stop(process)
            process.communicate()
        return False

    def _finish(self, folder: Path) -> int:
        """Run the command to its end and compare; a run that had ended may say so."""
        before = self.command.compared(folder)
        wrong = {name for name, value in before.items() if name in self.expected and value != self.expected[name]}
        if wrong and self.command.name not in ("train", "colmap"):  # which write as they go
            self._find(f"a half-written {sorted(wrong)[0]} after a kill")
        ended = run_to_end(self.command.continuation(folder), folder, self.environment)
        errors = ended.stderr.strip().splitlines()
        if "Traceback" in ended.stderr:
            self._find(f"traceback after a kill: {errors[-1][:300]}")
        found = self.command.compared(folder)
        if found != self.expected:
            different = sorted(name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name))
            last = errors[-1][:200] if errors else "no error"
            self._find(f"{len(different)} outputs differ from a whole run's, first {different[0]} ({last})")
        return 1

    def _find(self, what: str) -> None:
        replay = f"python -m campaign kills --commands '{self.command.name}' --seed {self.result.settings['seed']}"
        self.result.findings.append(Finding(self.command.name, what, replay))
