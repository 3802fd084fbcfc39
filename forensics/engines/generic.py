"""Lines that any program in a container may print: argument parsers, crashes, runtimes, kernels.

These signals carry no engine's name. They make sure that a root line is found although no
dialect knows the program.
"""

from __future__ import annotations

import re

from forensics.engines.dialect import ACCESS, UVICORN, Dialect, Signal
from forensics.model import Frame, Record

_RANK = re.compile(r"\[(?:default|rank)?\d+\]: ?")
_PYTHON = re.compile(
    r"(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)? )?[-\[ ]{0,3}"
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\b[\]: -]{1,4}"
)


def parse(text: str, line: int, at: str | None) -> Record:
    """Make a record of a line that no engine's dialect claims.

    Args:
        text: The line without terminal codes.
        line: Its physical number.
        at: Its time from the envelope.
    """
    rank = _RANK.match(text)
    message = text[rank.end() :] if rank else text
    uvicorn = UVICORN.match(message)
    if uvicorn:
        message = message[uvicorn.end() :]
        kind = "access" if ACCESS.match(message) else "log"
        return Record(line, text, message, level=uvicorn["level"], kind=kind, at=at)  # type: ignore[arg-type]
    if ACCESS.match(message):
        return Record(line, text, message, kind="access", at=at)
    level = _PYTHON.match(message)
    return Record(line, text, message, level=level["level"] if level else None, at=at)


def in_request(frames: tuple[Frame, ...]) -> bool:
    """Say whether an exception ended the handling of one request, and not the server."""
    return any("/uvicorn/protocols/" in frame.file for frame in frames)


#: How a process says that another one is gone, late or out of reach: NCCL, Gloo, c10d, Ray, sockets.
_OBSERVES = re.compile(
    r"remote process exited or there was a network error|Connection closed by (?:remote )?peer"
    r"|[Cc]onnection (?:was )?(?:reset|aborted|refused)|Broken ?pipe|[Ss]erver disconnected"
    r"|ServerDisconnectedError|RemoteProtocolError|ClientConnectorError|RemoteDisconnected"
    r"|All connection attempts failed|Watchdog caught collective operation timeout"
    r"|collective operation timeout|ncclRemoteError|(?:Read|Write) (?:error|timeout) \[|recvValue failed"
    r"|sendBytes failed|failed to recv|Failed to recv|store->get|TCPStore.{0,80}(?:timed? ?out|closed)"
    r"|[Tt]imed? ?out (?:after \d+ ?m?s )?waiting for|wait timeout after \d+ ?ms|DistStoreError|DistNetworkError"
    r"|Rank \d+ (?:failed to|timed out|is not|did not)|ActorDiedError|RayActorError|ActorUnavailableError"
    r"|NodeDiedError|WorkerCrashedError|OwnerDiedError|worker process has died|node .{0,80}is dead"
    r"|EngineDeadError|Engine core initialization failed|[Ss]ee (?:root cause|stack trace) (?:above|\(above\))"
    r"|upstream prematurely closed|upstream connect error|502 Bad Gateway"
)


def observes(text: str) -> bool:
    """Say whether a text only tells that another process is gone, late or out of reach."""
    return _OBSERVES.search(text) is not None


SIGNALS: tuple[Signal, ...] = (
    Signal("fatal", "arguments", r"^(?P<program>[\w. -]{1,60}): error: (?:(?:unrecognized|ambiguous) |argument |the following arguments |invalid )"),
    Signal("fatal", "terminate", r"^terminate called (?:after throwing|without an active exception|recursively)"),
    Signal("fatal", "python", r"^Fatal Python error: "),
    Signal("fatal", "signal", r"(?:^|: line \d+: +\d+ |\s)(?:Segmentation fault|Aborted|Illegal instruction|Bus error|Killed)(?: +\(core dumped\)|\s{2,}\S.{0,200}$)|^(?:Segmentation fault|Killed|Illegal instruction|Bus error)$|^!!!!!!! Segfault encountered !!!!!!!"),
    Signal("fatal", "panic", r"^thread '[^']{0,80}' (?:\(\d+\) )?panicked at "),
    Signal("fatal", "go", r"^panic: |^fatal error: (?:unexpected signal|runtime: |out of memory|all goroutines are asleep|concurrent map|stack overflow)|^SIG(?:SEGV|ABRT|BUS|ILL|FPE): \w"),
    Signal("fatal", "assertion", r"^\S{1,300}: \S{1,200}: Assertion `.{1,300}' failed\."),
    Signal("fatal", "exec", r"^exec (?:/\S{1,300}|\S{1,100}): (?:exec format error|no such file or directory|permission denied)"),
    Signal("fatal", "shell", r"^(?:/\S{1,100}|sh|bash|-?\S{1,40}sh): (?:line \d+: |\d+: )?\S{1,200}: (?:not found|command not found|No such file or directory|Permission denied)$"),
    Signal("fatal", "runtime", r"^(?:docker: )?(?:Error response from daemon|Error: |Cannot connect to the Docker daemon)|^(?:docker|podman|nerdctl): "),
    Signal("fatal", "oci", r"OCI runtime (?:create|exec) failed|nvidia-container-cli: "),
    # A rank that only observes that another one is gone.
    Signal("wrapper", "peer_lost", r"remote process exited or there was a network error|\]? ?Connection closed by peer \[|Connection reset by peer \["),
    Signal("death", "kernel_oom", r"(?:Memory cgroup out of memory|Out of memory): Killed process (?P<code>\d+) \((?P<dead>[^)]{1,40})\)"),
    Signal("death", "systemd", r"Main process exited, code=(?P<how>\w+), status=(?P<code>\S+)"),
    Signal("fact", "gpu", r"(?:Found GPU\d+ |GPU \d+: |Detected GPU |device_name[=:] ?'?)(?P<gpu>(?:NVIDIA|AMD|Tesla|GeForce)[\w .-]{2,60}?)(?: which is of cuda capability (?P<capability>\d+\.\d+)|$| ?[,(';])"),
    Signal("fact", "gpu", r"(?P<gpu>NVIDIA (?:GB10|GB200|GB300|B200|B300|H100|H200|A100|L40S?|L4|RTX [\w ]{2,30}?))\b"),
    Signal("fact", "capability", r"(?:compute capability|cuda capability|Compute Capability)[ :=]{1,3}(?P<capability>\d{1,2}\.\d)\b"),
    Signal("fact", "arch", r"(?P<arch>aarch64|x86_64)-linux-gnu"),
    Signal("fact", "torch", r"(?:PyTorch|torch)(?: version|==)[ :=]{0,3}(?P<torch>\d+\.\d+\.\d+\S{0,30})"),
)  # fmt: skip

#: Programs that any server may run as, or start: interpreters, launchers, compilers of kernels.
PROGRAMS: tuple[str, ...] = (
    "python", "pt_main_thread", "pt_elastic", "ray", "torchrun", "uvicorn", "gunicorn", "mpirun",
    "orted", "nvcc", "cicc", "ptxas", "cc1plus", "ninja",
)  # fmt: skip

GENERIC = Dialect(name="generic", signals=SIGNALS, parse=parse, programs=PROGRAMS)
