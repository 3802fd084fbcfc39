"""Root-cause analysis that needs no rule: which printed line came first, innermost, and why.

A failed server prints one cause and a cascade: the worker's exception, the engine core's, "see
root cause above", the API server's, leak warnings. This module finds the line a person should
read. It judges by structure only: order, process, chain, what the run did afterwards, and the
dialect's knowledge of which lines merely point elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from msgspec import Struct

from forensics.engines import DIALECTS, ENGINES, Dialect
from forensics.engines.generic import in_request
from forensics.model import Evidence, ExceptionEvent, Failure, Outcome, SignalEvent

#: Failed look-ups: what was raised from them says more (a key that is missing names no remedy).
_LOOKUPS = {"KeyError", "IndexError", "AttributeError", "StopIteration", "LookupError", "TypeError"}
_WEAK_CAUSES = {"KeyError", "IndexError", "StopIteration", "LookupError"}
#: Failures of the machine: what is raised while handling one is a consequence.
_HARD = re.compile(
    r"out of memory|CUDA|NCCL|cuBLAS|cuDNN|HIP error|Cannot allocate memory|No space left",
    re.IGNORECASE,
)
_INTERRUPTS = {"KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit"}
_HANDLED_LEVELS = {"DEBUG", "INFO", "WARNING"}
_REORDER_LINES = 400
#: Lines that a program still prints after the exception it dies of.
_LAST_WORDS = 40
#: Lines between an exception and the program's own word that it is failing.
_NEAR = 200
#: Depth from which on a process is inside the program (engine core, worker).
_INNER = 2
_MIN_REPEATED = 12
#: Exit code of a process ended by SIGKILL (128 + 9).
_KILLED = 137


class Judgement(Struct, frozen=True):
    """What became of the run.

    Attributes:
        failure: The root of the failure, None where nothing failed.
        outcome: In the words of the contract.
        ready_line: Line at which the server was ready, None if never.
        stop_line: Line at which an orderly end began, None if never.
        blind: Whether what the log shows may belong to an orderly end whose beginning is missing.
    """

    failure: Failure | None
    outcome: Outcome
    ready_line: int | None
    stop_line: int | None
    blind: bool = False


def judge(evidence: Evidence) -> Judgement:
    """Say how a run ended and what the root of its failure is.

    Args:
        evidence: Everything known of the run.
    """
    dialect = next((d for d in ENGINES if d.name == evidence.run.engine), None)
    ready = _ready_line(evidence, dialect)
    stop = _stop_line(evidence)
    failure = _find(evidence, dialect, ready, stop)
    if failure is None:
        ready = ready if ready is not None else _waiting_line(evidence, dialect)
        failure = _cut(evidence, ready, stop)
    blind = failure is not None and ready is None and _is_blind(evidence, failure)
    outcome = "unknown" if blind else _outcome(evidence, failure, ready, stop)
    return Judgement(failure, outcome, ready, stop, blind)


def _is_blind(evidence: Evidence, failure: Failure) -> bool:
    """Say whether only the end of a log is there, and it looks like an orderly one.

    A clean stop prints exceptions too, and what would tell it from a crash stood earlier.
    """
    nothing_before = not evidence.milestones and evidence.ending == "orderly"
    stated = bool(evidence.run.exit_code) or evidence.context.whole
    return nothing_before and not stated and failure.kind == "exception"


# --- how it ended ------------------------------------------------------------------------------


def _ready_line(evidence: Evidence, dialect: Dialect | None) -> int | None:
    name = dialect.ready if dialect else None
    for milestone in evidence.milestones:
        if milestone.milestone == name:
            return milestone.line
    # A log that begins while serving has numbers of serving instead, and nothing of the start.
    numbers = evidence.metrics.get("generation_tokens_per_s")
    if not numbers:
        return None
    return numbers[0][0] if evidence.milestones else 0


def _waiting_line(evidence: Evidence, dialect: Dialect | None) -> int | None:
    """Return where a program that loads nothing by itself began to wait for work, if it does."""
    last = evidence.milestones[-1] if evidence.milestones else None
    waits = last is not None and dialect is not None and last.milestone == dialect.waits
    return last.line if last is not None and waits else None


def _crash_line(evidence: Evidence) -> int | None:
    """Return the first line by which the program says that it is failing."""
    lines = [s.record.line for s in evidence.signals if s.kind in {"crash", "death", "wrapper"}]
    lines += [e.line for e in evidence.exceptions if _is_wrapper(e)]
    # An inner process serves no requests by itself: an exception that it raises ends it.
    lines += [
        _start(e)
        for e in evidence.exceptions
        if e.depth >= _INNER
        and e.level not in _HANDLED_LEVELS
        and not _progress_after(e.end_line, e.process, evidence, None)
    ]
    return min(lines, default=None)


def _stop_line(evidence: Evidence) -> int | None:
    """Return where an orderly end began.

    uvicorn's and the engine core's words of farewell are also printed in the wake of a crash:
    they count only where nothing failed before them.
    """
    crash = _crash_line(evidence)
    for signal in evidence.signals:
        if signal.kind != "stop":
            continue
        line = signal.record.line
        if not _may_follow_crash(signal) or crash is None or line < crash:
            return line
    return _interrupted(evidence, crash)


def _interrupted(evidence: Evidence, crash: int | None) -> int | None:
    """Return where somebody interrupted the program by hand (SIGINT), before anything failed."""
    for event in evidence.exceptions:
        if event.type.rpartition(".")[2] == "KeyboardInterrupt":
            line = _start(event)
            return line if crash is None or line <= crash else None
    return None


def _may_follow_crash(signal: SignalEvent) -> bool:
    return any(
        known.after_failure
        for dialect in DIALECTS
        for known in dialect.signals
        if (known.kind, known.name) == (signal.kind, signal.name)
    )


def _outcome(
    evidence: Evidence, failure: Failure | None, ready: int | None, stop: int | None
) -> Outcome:
    if failure is None:
        return _outcome_without_failure(evidence, ready, stop)
    run = evidence.run
    by_kill = run.oom_killed is True or run.exit_code == _KILLED
    if failure.kind == "cut":
        return _cut_outcome(ready, run.exit_code, by_kill=by_kill)
    if ready is not None and failure.line > ready:
        return "crashed"
    # What the kernel or the init system reports of a death happened to the program from outside.
    reported = failure.kind == "death" and run.engine is None
    if reported or (run.engine is None and not evidence.exceptions and by_kill):
        return "killed"
    stranger = run.engine is None and not evidence.milestones and failure.kind == "exception"
    return "unknown" if stranger else "failed_startup"


def _outcome_without_failure(evidence: Evidence, ready: int | None, stop: int | None) -> Outcome:
    if stop is not None or evidence.ending == "orderly":
        return "stopped"
    if ready is not None:
        return "served"
    return "starting" if evidence.milestones else "unknown"


def _cut_outcome(ready: int | None, exit_code: int | None, *, by_kill: bool) -> Outcome:
    """Say how a run ended whose log just stops."""
    if by_kill:
        return "killed"
    if exit_code:
        return "crashed" if ready is not None else "failed_startup"
    return "served" if ready is not None else "starting"


# --- candidates --------------------------------------------------------------------------------


def _is_wrapper(event: ExceptionEvent) -> bool:
    text = f"{event.type.rpartition('.')[2]}: {event.message}"
    return any(
        re.search(signal.pattern, text) is not None
        for dialect in DIALECTS
        for signal in dialect.signals
        if signal.kind == "wrapper"
    )


def _is_teardown(event: ExceptionEvent, dialect: Dialect | None) -> bool:
    names = dialect.teardown if dialect else ()
    return any(
        frame.function.rpartition(".")[2].startswith(name)
        for frame in event.frames
        for name in names
    )


def _start(event: ExceptionEvent) -> int:
    return event.header if event.header is not None else event.line


def _find(
    evidence: Evidence, dialect: Dialect | None, ready: int | None, stop: int | None
) -> Failure | None:
    """Return the first failure among exceptions, deaths and fatal lines."""
    tails = _tails(evidence)
    candidates = [e for e in tails if _counts(e, evidence, dialect, ready, stop)]
    candidates = _in_crash(candidates, evidence, ready)
    signals = [
        s
        for s in evidence.signals
        if s.kind in {"fatal", "death"}
        and (stop is None or s.record.line < stop)
        and not _progress_after(s.record.line, s.record.process, evidence, ready)
    ]
    first_signal = min(signals, key=lambda s: s.record.line, default=None)
    first = min(candidates, key=_start, default=None)
    if first is None:
        wrapped = [e for e in tails if _is_wrapper(e) and (stop is None or e.line < stop)]
        if first_signal is not None:
            return _of_signal(first_signal, evidence)
        return _of_exception(wrapped[0], evidence, dialect) if wrapped else None
    if first_signal is not None and first_signal.record.line < _start(first):
        return _of_signal(first_signal, evidence)
    return _of_exception(_deeper(first, candidates), evidence, dialect)


def _tails(evidence: Evidence) -> list[ExceptionEvent]:
    """Return the last exception of each chain."""
    causes = {e.cause for e in evidence.exceptions if e.cause is not None}
    return [e for i, e in enumerate(evidence.exceptions) if i not in causes]


def _counts(
    event: ExceptionEvent,
    evidence: Evidence,
    dialect: Dialect | None,
    ready: int | None,
    stop: int | None,
) -> bool:
    """Say whether an exception can be the root: not handled, not a pointer, not of the end."""
    if event.level in _HANDLED_LEVELS or _is_wrapper(event):
        return False
    if stop is not None and _start(event) >= stop:
        return False
    name = event.type.rpartition(".")[2]
    if ready is not None and (name in _INTERRUPTS or in_request(event.frames)):
        return False
    if _is_teardown(event, dialect) and _crash_line(evidence) is not None and ready is None:
        earlier = any(_start(e) < _start(event) for e in evidence.exceptions if e is not event)
        if earlier:
            return False
    return not _progress_after(event.end_line, event.process, evidence, ready)


def _progress_after(line: int, process: str | None, evidence: Evidence, ready: int | None) -> bool:
    """Say whether the start went on after a line: then what stood there was handled.

    Other ranks may still print progress while one has failed, so the same process must have gone
    on; for the server itself, or where nobody is named, any process. What comes after the program
    gave up is another piece of work.
    """
    by_line = {s.record.line: s.record.process for s in evidence.signals if s.kind == "milestone"}
    reached = [m.line for m in evidence.milestones]
    if evidence.last_ready is not None:
        reached.append(evidence.last_ready)
    gave_up = _gave_up(line, evidence, ready)
    later = [n for n in reached if n > line and (gave_up is None or n < gave_up)]
    outer = process is None or _depth(process) <= 1
    return any(outer or (n in by_line and by_line[n] in {process, None}) for n in later)


def _gave_up(line: int, evidence: Evidence, ready: int | None) -> int | None:
    """Return the line, from this one on, by which the program gave up what it was doing."""
    lines = [
        s.record.line
        for s in evidence.signals
        if s.gives_up == "always"
        or (s.gives_up == "serving" and ready is not None and s.record.line > ready)
    ]
    return min((n for n in lines if n >= line), default=None)


def _depth(process: str) -> int:
    return max((engine.depth(process) for engine in ENGINES), default=0)


def _in_crash(
    candidates: list[ExceptionEvent], evidence: Evidence, ready: int | None
) -> list[ExceptionEvent]:
    """While serving, requests fail and the server lives: only those of the crash count."""
    if ready is None:
        return candidates
    before = [e for e in candidates if _start(e) < ready]
    serving = [e for e in candidates if _start(e) >= ready]
    crash = _crash_line(evidence)
    if crash is None:
        if evidence.ending != "failure":
            return before
        last = evidence.last.line if evidence.last else 0
        ends = [e for e in serving if last - e.end_line <= _LAST_WORDS]
        return before + [e for e in ends if not _lives_after(e.end_line, evidence)]
    at = [e for e in serving if e.end_line >= crash - 3]
    if not at:
        nearest = max(serving, key=lambda e: e.end_line, default=None)
        if nearest is not None and crash - nearest.end_line <= _NEAR:
            at = [nearest]
    return before + at


def _lives_after(line: int, evidence: Evidence) -> bool:
    """Say whether the server still served after a line, so that one request failed there."""
    figures = evidence.metrics.get("generation_tokens_per_s", [])
    return any(n > line for n, _ in figures[-8:]) or any(n > line for n in evidence.answered)


def _deeper(first: ExceptionEvent, candidates: list[ExceptionEvent]) -> ExceptionEvent:
    """Prefer an inner process whose exception the first one only repeats or is mixed up with."""
    message = first.message
    for event in sorted(candidates, key=lambda e: (-e.depth, _start(e))):
        if event.depth <= first.depth or event is first:
            continue
        own = event.message.split("\n", 1)[0]
        repeats = len(own) >= _MIN_REPEATED and own in message
        interleaved = _start(event) <= first.line
        if _start(event) - first.end_line <= _REORDER_LINES and (repeats or interleaved):
            return event
    return first


# --- failures ----------------------------------------------------------------------------------


def _resolve(
    event: ExceptionEvent, evidence: Evidence, dialect: Dialect | None
) -> list[ExceptionEvent]:
    """Return the chain from the exception that says most to the last one raised from it."""
    chain, current = [event], event
    for _ in range(32):
        if current.cause is None or not 0 <= current.cause < len(evidence.exceptions):
            break
        before = evidence.exceptions[current.cause]
        if before.line >= current.line or not _goes_on(current, before, dialect):
            break
        chain.insert(0, before)
        current = before
    if current.type.rpartition(".")[2].endswith("ExceptionGroup"):
        inner = [
            e
            for e in evidence.exceptions
            if e.in_group and e.line > current.line and not e.type.endswith("ExceptionGroup")
        ]
        if inner:
            chain.insert(0, min(inner, key=lambda e: e.line))
    return chain


def _goes_on(event: ExceptionEvent, before: ExceptionEvent, dialect: Dialect | None) -> bool:
    """Say whether the exception before says more than the one that followed it."""
    name = before.type.rpartition(".")[2]
    if not event.message or _is_wrapper(event):
        return True
    if event.relation == "cause":
        return not (name in _WEAK_CAUSES or not before.message)
    # "During handling of": mostly a look-up that failed first, unless the machine failed.
    if name in _LOOKUPS:
        return False
    return _HARD.search(before.message) is not None or _is_teardown(event, dialect)


def _of_exception(event: ExceptionEvent, evidence: Evidence, dialect: Dialect | None) -> Failure:
    chain = _resolve(event, evidence, dialect)
    root = chain[0]
    line, text = root.telling_line, root.telling_text
    if root.first_seen is not None and root.first_seen_text is not None:
        line, text = root.first_seen, root.first_seen_text
    lines = {line, root.line}
    for one in chain:
        lines.update(range(_start(one), min(one.end_line, _start(one) + 2000) + 1))
        if one.first_seen is not None:
            lines.add(one.first_seen)
    return Failure(line, text, root.process or event.process, root, frozenset(lines), "exception")


def of_lines(lines: set[int], evidence: Evidence) -> Failure | None:
    """Return the failure that is the exception printed on one of these lines, None if none is."""
    dialect = next((d for d in ENGINES if d.name == evidence.run.engine), None)
    for event in evidence.exceptions:
        if {event.line, event.telling_line} & lines:
            return _of_exception(event, evidence, dialect)
    return None


def _of_signal(signal: SignalEvent, evidence: Evidence) -> Failure:
    record = signal.record
    near = evidence.excerpts.get(record.line)
    lines = {record.line}
    if signal.kind == "fatal" and near is not None:
        lines.update(n for n, _ in near.after)
    kind = "fatal" if signal.kind == "fatal" else "death"
    return Failure(record.line, record.text, record.process, None, frozenset(lines), kind)  # type: ignore[arg-type]


def _cut(evidence: Evidence, ready: int | None, stop: int | None) -> Failure | None:
    """Return the last milestone as the root where a log simply stops.

    A log that holds neither the start nor the end of a run says nothing about a failure.
    """
    if stop is not None or evidence.last is None:
        return None
    if evidence.ending == "failure":
        return _announced(evidence)
    run = evidence.run
    ended_well = (run.exit_code == 0 and ready is not None) or run.exit_code in {130, 143}
    known = run.engine is not None and bool(evidence.milestones)
    stated = bool(run.exit_code) or bool(run.oom_killed)
    if evidence.ending != "cut" or ended_well or not (known or stated):
        return None
    last = evidence.last
    if not evidence.milestones:
        return Failure(last.line, last.text, last.process, None, frozenset({last.line}), "cut")
    line = evidence.milestones[-1].line
    signal = next(s for s in evidence.signals if s.kind == "milestone" and s.record.line == line)
    record = signal.record
    return Failure(line, record.text, record.process, None, frozenset({line, last.line}), "cut")


def _announced(evidence: Evidence) -> Failure | None:
    """Return where the program says that it is failing, in a log that ends before it says why."""
    crash = next((s for s in evidence.signals if s.kind in {"crash", "wrapper"}), None)
    if crash is None or evidence.last is None:
        return None
    if _progress_after(crash.record.line, crash.record.process, evidence, None):
        return None
    record = crash.record
    lines = frozenset({record.line, evidence.last.line})
    return Failure(record.line, record.text, record.process, None, lines, "cut")


# --- fingerprints ------------------------------------------------------------------------------

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"\b[0-9a-fA-F]{8,}\b"), "<hex>"),
    (re.compile(r"(?:/[\w.@+-]+){2,}/?"), "<path>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)
#: Packages whose frames name the mechanism; all others are plumbing.
_FIELD = re.compile(
    r"/(vllm|flashinfer|torch|triton|transformers|sglang|tensorrt_llm|huggingface_hub|safetensors)/(?P<path>.+)$"
)


def mask(text: str) -> str:
    """Replace what differs between hosts and runs: addresses, numbers, paths."""
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text[:300]


def fingerprint(failure: Failure, last_milestone: str | None) -> str:
    """Return a key that is equal for the same failure on another host, pid, time or path.

    Made from exception type, masked message, the two innermost frames of the field's packages
    (without line numbers) and the phase; SHA-256, the first 16 hexadecimal digits.
    """
    event = failure.exception
    if event is None:
        # The line's own prefix holds time and pid, which the masks take out.
        parts: Iterable[str] = (failure.kind, mask(failure.text), last_milestone or "")
    else:
        frames = [
            f"{found['path']}:{frame.function}"
            for frame in event.frames
            if (found := _FIELD.search(frame.file)) is not None
        ][-2:]
        parts = (event.type, mask(event.message.split("\n", 1)[0]), *frames, last_milestone or "")
    return hashlib.sha256("\0".join(("1", *parts)).encode()).hexdigest()[:16]
