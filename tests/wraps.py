"""Logs wrapped as runtimes, journals and people wrap them.

Each function takes the bytes of a log and gives the wrapped bytes with, for each line of the log,
the physical line on which it then stands. Nothing here is taken from the code under test.
"""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable

import zstandard

Wrapped = tuple[bytes, list[int]]
PART = 16_384
START = dt.datetime(2026, 12, 1, 2, 0, tzinfo=dt.UTC)


def moment(index: int) -> dt.datetime:
    return START + dt.timedelta(milliseconds=10 * index)


def nanos(index: int) -> str:
    return moment(index).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def trimmed(index: int) -> str:
    """RFC3339Nano: zeros at the end are left out."""
    return nanos(index).removesuffix("Z").rstrip("0").rstrip(".") + "Z"


def parts(line: bytes) -> list[bytes]:
    """Cut a line as a container runtime does; never empty."""
    return [line[i : i + PART] for i in range(0, len(line), PART)] or [b""]


def lines_of(log: bytes) -> tuple[list[bytes], bool]:
    """Lines without ends, and whether the last one has its newline."""
    found = log.split(b"\n")
    return (found[:-1], True) if found[-1] == b"" else (found, False)


def _prefixed(log: bytes, prefix: Callable[[int], str]) -> Wrapped:
    lines, ended = lines_of(log)
    text = b"\n".join(prefix(i).encode() + line for i, line in enumerate(lines))
    return text + (b"\n" if ended and lines else b""), list(range(1, len(lines) + 1))


def docker_json(log: bytes) -> Wrapped:
    out, places, number = [], [], 0
    lines, ended = lines_of(log)
    for index, line in enumerate(lines):
        places.append(number + 1)
        pieces = parts(line)
        for at, piece in enumerate(pieces):
            number += 1
            last = at == len(pieces) - 1 and (ended or index < len(lines) - 1)
            text = piece.decode("utf-8", "replace") + ("\n" if last else "")
            body = json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")
            body = body.replace(">", "\\u003e").replace("&", "\\u0026")
            out.append(f'{{"log":{body},"stream":"stderr","time":"{trimmed(index)}"}}\n'.encode())
    return b"".join(out), places


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def docker_local(log: bytes) -> Wrapped:
    out, places, number = [], [], 0
    for index, line in enumerate(lines_of(log)[0]):
        places.append(number + 1)
        pieces = parts(line)
        for at, piece in enumerate(pieces):
            number += 1
            entry = field(1, b"stderr") + field(2, int(moment(index).timestamp() * 1e9))
            entry += field(3, piece)
            if len(pieces) > 1:
                more = field(2, b"id%d" % index) + field(3, at + 1)
                if at == len(pieces) - 1:
                    more = field(1, 1) + more
                entry += field(4, 1) + field(5, more)
            size = struct.pack(">I", len(entry))
            out.append(size + entry + size)
    return b"".join(out), places


def docker_frames(log: bytes) -> Wrapped:
    """The API's stream: a frame a line, standard error."""
    lines, ended = lines_of(log)
    out = []
    for index, line in enumerate(lines):
        body = line + (b"\n" if ended or index < len(lines) - 1 else b"")
        out.append(struct.pack(">BxxxI", 2, len(body)) + body)
    return b"".join(out), list(range(1, len(lines) + 1))


def docker_timestamps(log: bytes) -> Wrapped:
    lines, ended = lines_of(log)
    text = b"\n".join(
        b"".join(nanos(i).encode() + b" " + piece for piece in parts(line))
        for i, line in enumerate(lines)
    )
    return text + (b"\n" if ended and lines else b""), list(range(1, len(lines) + 1))


def compose(log: bytes) -> Wrapped:
    return _prefixed(log, lambda _: "vllm-1  | ")


def compose_colour(log: bytes) -> Wrapped:
    return _prefixed(log, lambda _: "\x1b[36mvllm-1  | \x1b[0m")


def compose_timestamps(log: bytes) -> Wrapped:
    return _prefixed(log, lambda i: f"vllm-1  | {nanos(i)} ")


def cri(log: bytes) -> Wrapped:
    out, places, number = [], [], 0
    lines, ended = lines_of(log)
    for index, line in enumerate(lines):
        places.append(number + 1)
        pieces = parts(line)
        for at, piece in enumerate(pieces):
            number += 1
            last = at == len(pieces) - 1 and (ended or index < len(lines) - 1)
            out.append(f"{trimmed(index)} stderr {'F' if last else 'P'} ".encode() + piece + b"\n")
    return b"".join(out), places


def compose_over_cri(log: bytes) -> Wrapped:
    inner, places = cri(log)
    return compose(inner)[0], places


def kubectl_prefix(log: bytes) -> Wrapped:
    return _prefixed(log, lambda _: "[pod/vllm-0/server] ")


def kubectl_timestamps(log: bytes) -> Wrapped:
    return _prefixed(log, lambda i: f"[pod/vllm-0/server] {nanos(i)} ")


def journal_entry(index: int) -> dict[str, str]:
    stamp = str(int(moment(index).timestamp() * 1_000_000))
    return {
        "__CURSOR": f"s=0;i={index:x}",
        "__REALTIME_TIMESTAMP": stamp,
        "PRIORITY": "3",
        "CONTAINER_NAME": "vllm",
    }


def journal_json(log: bytes) -> Wrapped:
    out = []
    lines = lines_of(log)[0]
    for index, line in enumerate(lines):
        entry: dict[str, object] = dict(journal_entry(index))
        entry["MESSAGE"] = _message(line)
        out.append(json.dumps(entry) + "\n")
    return "".join(out).encode(), list(range(1, len(lines) + 1))


def _message(line: bytes) -> object:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return list(line)
    return text if all(c >= " " or c == "\t" for c in text) else list(line)


def journal_export(log: bytes) -> Wrapped:
    out, places, number = [], [], 1
    for index, line in enumerate(lines_of(log)[0]):
        body = "".join(f"{k}={v}\n" for k, v in journal_entry(index).items()).encode()
        before = number + body.count(b"\n")
        if all(c >= 32 or c == 9 for c in line):
            places.append(before)
            body += b"MESSAGE=" + line + b"\n"
        else:
            size = struct.pack("<Q", len(line))
            places.append(before + 1 + size.count(b"\n"))
            body += b"MESSAGE\n" + size + line + b"\n"
        body += b"\n"
        number += body.count(b"\n")
        out.append(body)
    return b"".join(out), places


def journal_short(log: bytes) -> Wrapped:
    return _prefixed(log, lambda i: f"{moment(i):%b %d %H:%M:%S} gpu-host vllm[812]: ")


def journal_iso(log: bytes) -> Wrapped:
    return _prefixed(log, lambda i: f"{moment(i):%Y-%m-%dT%H:%M:%S}+0000 gpu-host vllm[812]: ")


def syslog_3164(log: bytes) -> Wrapped:
    return _prefixed(log, lambda i: f"<27>{moment(i):%b %d %H:%M:%S} gpu-host 0123456789ab[812]: ")


def syslog_5424(log: bytes) -> Wrapped:
    return _prefixed(
        log, lambda i: f"<27>1 {moment(i):%Y-%m-%dT%H:%M:%S.%f}Z gpu-host vllm 812 vllm - "
    )


def loki(log: bytes) -> Wrapped:
    lines = lines_of(log)[0]
    out = [
        json.dumps(
            {
                "labels": {"container": "vllm", "pod": "vllm-0"},
                "line": line.decode("utf-8", "replace"),
                "timestamp": nanos(i),
            }
        )
        for i, line in enumerate(lines)
    ]
    return "".join(f"{x}\n" for x in out).encode(), list(range(1, len(lines) + 1))


def vector(log: bytes) -> Wrapped:
    lines = lines_of(log)[0]
    out = [
        json.dumps(
            {
                "container_name": "vllm",
                "host": "gpu-host",
                "message": line.decode("utf-8", "replace"),
                "stream": "stderr",
                "timestamp": nanos(i),
            }
        )
        for i, line in enumerate(lines)
    ]
    return "".join(f"{x}\n" for x in out).encode(), list(range(1, len(lines) + 1))


def fluent_bit(log: bytes) -> Wrapped:
    lines = lines_of(log)[0]
    out = [
        json.dumps(
            {
                "date": moment(i).timestamp(),
                "log": line.decode("utf-8", "replace"),
                "stream": "stderr",
                "kubernetes": {"pod_name": "vllm-0", "container_name": "server"},
            }
        )
        for i, line in enumerate(lines)
    ]
    return "".join(f"{x}\n" for x in out).encode(), list(range(1, len(lines) + 1))


def actions(log: bytes) -> Wrapped:
    return _prefixed(log, lambda i: f"{moment(i):%Y-%m-%dT%H:%M:%S.%f}0Z ")


def pipe_timestamps(log: bytes) -> Wrapped:
    return _prefixed(log, lambda i: f"{moment(i):%Y-%m-%d %H:%M:%S}.000 | ")


def windows(log: bytes) -> Wrapped:
    lines, ended = lines_of(log)
    text = b"\r\n".join(line.removesuffix(b"\r") for line in lines) + (b"\r\n" if ended else b"")
    return text, list(range(1, len(lines) + 1))


def script(log: bytes) -> Wrapped:
    """A terminal's own copy: one more line before, and ends of lines as a terminal has them."""
    text, places = windows(log)
    head = b'Script started on 2026-12-01 02:00:00+00:00 [TERM="xterm-256color"]\n\x1b[?2004l\r'
    return head + text, [place + 1 for place in places]


def utf16(log: bytes) -> Wrapped:
    lines = lines_of(log)[0]
    return log.decode("utf-8", "replace").encode("utf-16"), list(range(1, len(lines) + 1))


ENVELOPES: dict[str, Callable[[bytes], Wrapped]] = {
    "actions": actions,
    "compose": compose,
    "compose, colours": compose_colour,
    "compose, times": compose_timestamps,
    "compose over cri": compose_over_cri,
    "cri": cri,
    "docker-frames": docker_frames,
    "docker-json": docker_json,
    "docker-local": docker_local,
    "docker-timestamps": docker_timestamps,
    "fluent bit": fluent_bit,
    "journal-export": journal_export,
    "journal-iso": journal_iso,
    "journal-json": journal_json,
    "journal-short": journal_short,
    "kubectl-prefix": kubectl_prefix,
    "kubectl-prefix, times": kubectl_timestamps,
    "loki": loki,
    "pipe-timestamps": pipe_timestamps,
    "script": script,
    "syslog 3164": syslog_3164,
    "syslog 5424": syslog_5424,
    "utf-16": utf16,
    "vector": vector,
    "windows": windows,
}


def tar(data: bytes, name: str = "logs/server.log") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(data: bytes, name: str = "logs/server.log") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "gzip, two members": lambda data: gzip.compress(data[:500], 1) + gzip.compress(data[500:], 1),
    "zstd": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
    "xz": lambda data: lzma.compress(data, preset=0),
    "bz2": lambda data: bz2.compress(data, 1),
    "tar": tar,
    "tar.gz": lambda data: gzip.compress(tar(data), 1),
    "zip": zipped,
    "zip of gzip": lambda data: zipped(gzip.compress(data, 1), "server.log.gz"),
}
