"""Attack every format with damaged files, and reduce what is found to the smallest damage."""

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from campaign.findings import Finding, PartResult, Say
from campaign.fuzz.known import REASONS
from campaign.fuzz.mutations import Mutation
from campaign.fuzz.registry import FORMATS
from campaign.fuzz.worker import Outcome, Worker

ROUND = 50  # cases of a format before the next one has its turn


@dataclass
class _Score:
    """Outcomes of a format, and one case of each kind of finding."""

    outcomes: Counter[str] = field(default_factory=Counter)
    cases: dict[str, tuple[list[Mutation], Outcome]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    known: dict[str, str] = field(default_factory=dict)  # seed of a case by its kind


def fuzz(
    seconds: float,
    max_cases: int | None,
    seed: int,
    names: Sequence[str],
    workers: int,
    corpus: Path | None,
    say: Say,
) -> PartResult:
    """Read damaged files of all formats until the time or the number of cases is used up.

    Args:
        seconds: Limit of time.
        max_cases: Limit of the number of cases of each format; None for none.
        seed: Cases are the same for the same seed.
        names: Formats; all if empty.
        workers: Number of processes.
        corpus: Folder that findings are written to, one file per format as the corpus of the tests has them.
        say: Shows progress.

    Raises:
        KeyError: For an unknown format.
    """
    chosen = {name: FORMATS[name] for name in names or FORMATS}
    scores = {name: _Score() for name in chosen}
    begin = time.monotonic()
    lock = threading.Lock()
    cases = _cases(list(chosen), max_cases, seed, lambda: time.monotonic() - begin < seconds)
    errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            with Worker(list(chosen)) as worker:
                while True:
                    with lock:
                        case = next(cases, None)
                    if case is None:
                        return
                    _run(worker, *case, scores[case[0]], lock, say)
        except BaseException as error:
            errors.put(error)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not errors.empty():
        raise errors.get()
    result = _result(scores, seed)
    result.seconds = time.monotonic() - begin
    if corpus:
        _write_corpus(corpus, scores)
    return result


def _cases(
    names: Sequence[str], max_cases: int | None, seed: int, has_time: Callable[[], bool]
) -> Iterator[tuple[str, str]]:
    """Yield formats and seeds of cases, a few of each format in turn."""
    for start in count(0, ROUND):
        for name in names:
            for number in range(start, start + ROUND):
                if max_cases is not None and number >= max_cases:
                    break
                if not has_time():
                    return
                yield name, f"{seed} {name} {number}"
        if max_cases is not None and start + ROUND >= max_cases:
            return


def _run(worker: Worker, name: str, seed: str, score: _Score, lock: threading.Lock, say: Say) -> None:
    outcome = worker.run(name, seed)
    with lock:
        score.outcomes[outcome.kind] += 1
        if (name, outcome.kind) in REASONS:
            score.known.setdefault(outcome.kind, seed)
            return
        if not outcome.is_finding:
            return
        score.counts[outcome.key] += 1
        if score.counts[outcome.key] > 1:
            return
    mutations = minimise(worker, name, worker.mutations(name, seed), outcome)
    with lock:
        score.cases[outcome.key] = mutations, outcome
    say(f"{name}: {outcome.kind}: {outcome.detail}")


def minimise(worker: Worker, name: str, mutations: Sequence[Mutation], outcome: Outcome) -> list[Mutation]:
    """Return the mutations without those that the finding does not need."""
    kept = list(mutations)
    for index in reversed(range(len(kept))):
        fewer = kept[:index] + kept[index + 1 :]
        if fewer and worker.run(name, fewer).key == outcome.key:
            kept = fewer
    return kept


def _result(scores: dict[str, _Score], seed: int) -> PartResult:
    result = PartResult("fuzz", "damaged files of every format that is read", {"seed": seed})
    for name, score in scores.items():
        good = {kind: score.outcomes[kind] for kind in ("result", "error")}
        in_libraries = sum(score.outcomes[kind] for kind in score.known)
        findings = {"in libraries": in_libraries, "findings": sum(score.counts.values())}
        result.counts.append({"where": name, "cases": score.outcomes.total(), **good, **findings})
        result.skipped += [
            f"{name}: {score.outcomes[kind]} times: {REASONS[name, kind]}; python -m campaign replay {name} '{known}'"
            for kind, known in score.known.items()
        ]
        for key, (mutations, outcome) in score.cases.items():
            replay = f"python -m campaign replay {name} '{json.dumps(mutations)}'"
            result.findings.append(Finding(name, f"{outcome.kind}: {outcome.detail}", replay, score.counts[key]))
    return result


def _write_corpus(folder: Path, scores: dict[str, _Score]) -> None:
    for name, score in scores.items():
        entries = [
            {"note": outcome.key.rpartition(":")[0] or outcome.key, "mutations": mutations}
            for mutations, outcome in score.cases.values()
        ]
        if entries:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
