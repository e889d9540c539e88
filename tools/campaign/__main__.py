"""Attack doap: damaged files, killed and starved processes, unsafe calls, extreme numbers, visitors of the page.

    python -m campaign                                   # every part, about ten minutes
    python -m campaign fuzz --seconds 3600 --seed 1      # one part, for an hour
    python -m campaign fuzz --formats png jpeg
    python -m campaign replay png '[["flip", 3, 0]]'     # one damaged file

Needs tools and tests on the path: PYTHONPATH=tools:tests. Writes results.json and index.html into the output folder and
ends with status 1 if there was a finding. See docs/campaign.md.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from campaign.findings import PartResult
from campaign.fuzz.run import fuzz
from campaign.fuzz.worker import Worker
from campaign.kills import kill
from campaign.numeric import check_numbers
from campaign.page import write_results
from campaign.starved import starve
from campaign.supply import check_supply
from campaign.visitors import attack_page


def main() -> int:
    """Run the parts that the command line names, and return the exit status."""
    arguments = _parse()
    if arguments.parts[:1] == ["replay"]:
        name, mutations = arguments.parts[1:]
        with Worker([name]) as worker:
            outcome = worker.run(name, json.loads(mutations) if mutations.startswith("[") else mutations)
        print(f"{outcome.kind}: {outcome.detail}")
        return int(outcome.is_finding)
    results: list[PartResult] = []
    for name in arguments.parts or PARTS:
        print(f"{name} …", flush=True)
        begin = time.monotonic()
        result = PARTS[name](arguments)
        result.seconds = time.monotonic() - begin
        results.append(result)
        cases = sum(row.get("cases", 0) for row in result.counts)
        print(f"{name}: {cases} cases, {len(result.findings)} findings, {result.seconds:.0f} s", flush=True)
        write_results(arguments.output, results)
    print(f"{arguments.output / 'index.html'}")
    return int(any(result.findings for result in results))


def _say(line: str) -> None:
    print(f"  {line[:300]}", flush=True)


def _fuzz(arguments: argparse.Namespace) -> PartResult:
    corpus = arguments.output / "corpus"
    return fuzz(arguments.seconds, arguments.cases, arguments.seed, arguments.formats, arguments.workers, corpus, _say)


def _kill(arguments: argparse.Namespace) -> PartResult:
    return kill(arguments.kills, arguments.seed, arguments.kill_seconds, arguments.commands, _say)


def _starve(arguments: argparse.Namespace) -> PartResult:
    return starve(arguments.seed, arguments.starve_seconds, arguments.disks, arguments.commands, _say)


PARTS: dict[str, Callable[[argparse.Namespace], PartResult]] = {
    "supply": lambda _: check_supply(),
    "numbers": lambda arguments: check_numbers(arguments.seed, _say),
    "fuzz": _fuzz,
    "kills": _kill,
    "starved": _starve,
    "page": lambda arguments: attack_page(arguments.visitors, arguments.page_seconds, arguments.seed, _say),
}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="campaign", description="Attack doap.")
    parser.add_argument("parts", nargs="*", help=f"parts: {', '.join(PARTS)}; all by default")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/campaign"), help="folder of the results")
    parser.add_argument("--seconds", type=float, default=250, help="time for damaged files")
    parser.add_argument("--cases", type=int, help="damaged files per format; as many as the time allows by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="*", default=[], help="formats to damage; all by default")
    parser.add_argument("--kills", type=int, default=10, help="kills of each command")
    parser.add_argument("--kill-seconds", type=float, default=200, help="time for kills")
    parser.add_argument("--starve-seconds", type=float, default=250, help="time for starved commands")
    parser.add_argument("--disks", type=int, default=2, help="sizes of full disks for each command")
    parser.add_argument("--visitors", type=int, default=100, help="visitors of the page at once")
    parser.add_argument("--page-seconds", type=float, default=30, help="time for hostile uploads to the page")
    parser.add_argument("--commands", nargs="*", default=[], help="commands to kill and starve; all by default")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
