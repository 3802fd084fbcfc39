"""Words to options: `docker run …` into runtime options, image and command; servers into arguments.

In: words with places. Out: the same words, sorted into what they mean. Nothing is changed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from forensics.launch import grammar
from forensics.launch.model import Option, Word


class Run(Struct, frozen=True):
    """A container command, sorted.

    Attributes:
        runtime: `docker`, `podman` or `nerdctl`.
        head: Words up to and with `run` or `create`.
        options: Its options in order.
        image: The image's word; None if there is none.
        command: The words after the image.
    """

    runtime: str
    head: tuple[Word, ...]
    options: tuple[Option, ...]
    image: Word | None
    command: tuple[Word, ...]


class Server(Struct, frozen=True):
    """A server's command, sorted.

    Attributes:
        program: Engine name.
        head: Words up to and with what names the program (`vllm serve`).
        model: The word that names the model, where it stands without an option.
        arguments: Its options in order.
        rest: Words that belong to nothing.
        words: All of them, in order.
    """

    program: str
    head: tuple[Word, ...]
    model: Word | None
    arguments: tuple[Option, ...]
    rest: tuple[Word, ...] = ()
    words: tuple[Word, ...] = ()


Line = Callable[[Word], int]


def skip_starters(words: Sequence[Word]) -> int:
    """Return how many words only start the command (`sudo -E`, `exec`, `env A=b`)."""
    i = 0
    while i < len(words) and _base(words[i].value) in grammar.STARTERS:
        starter = _base(words[i].value)
        i += 1
        while i < len(words) and (
            words[i].value.startswith("-")
            or (starter in {"env", "sudo"} and re.match(r"[A-Za-z_]\w*=", words[i].value))
        ):
            i += 2 if words[i].value in grammar.STARTER_VALUES else 1
    return i


def _base(value: str) -> str:
    return value.rpartition("/")[2]


def read_run(words: Sequence[Word], line: Line) -> Run | None:
    """Sort a container command; None where the words are none."""
    i = skip_starters(words)
    if i >= len(words) or _base(words[i].value) not in grammar.RUNTIMES:
        return None
    runtime = _base(words[i].value)
    i += 1
    while i < len(words) and words[i].value.startswith("-"):
        joined = "=" in words[i].value or words[i].value in {"-D", "--debug", "--tls", "--remote"}
        i += 1 if joined else 2
    if i < len(words) and words[i].value == "container":
        i += 1
    if i >= len(words) or words[i].value not in {"run", "create"}:
        return None
    i += 1
    head = tuple(words[:i])
    options: list[Option] = []
    while i < len(words) and words[i].value.startswith("-") and words[i].value != "-":
        if words[i].value == "--":
            i += 1
            break
        found, used = _run_option(words, i, line)
        options += found
        i += used
    image = words[i] if i < len(words) else None
    return Run(runtime, head, tuple(options), image, tuple(words[i + 1 :]))


def _run_option(words: Sequence[Word], i: int, line: Line) -> tuple[list[Option], int]:
    word = words[i]
    text = word.value
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        name = grammar.RUN_ALIASES.get(name, name)
        if equals:
            return [Option(name, value, (word,), line(word), joined=True)], 1
        if name in grammar.RUN_SWITCHES or i + 1 >= len(words):
            return [Option(name, None, (word,), line(word))], 1
        return [Option(name, words[i + 1].value, (word, words[i + 1]), line(word))], 2
    found: list[Option] = []
    for place in range(1, len(text)):
        name = grammar.RUN_SHORT.get(f"-{text[place]}", f"-{text[place]}")
        if name in grammar.RUN_SWITCHES:
            found.append(Option(name, None, (word,), line(word)))
            continue
        glued = text[place + 1 :].removeprefix("=")
        if glued:
            return [*found, Option(name, glued, (word,), line(word), joined=True)], 1
        if i + 1 >= len(words):
            return [*found, Option(name, None, (word,), line(word))], 1
        return [*found, Option(name, words[i + 1].value, (word, words[i + 1]), line(word))], 2
    return found, 1


# --- servers -----------------------------------------------------------------------------------

_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.launch_server": "sglang",
    "llama_cpp.server": "llama.cpp",
}
_BINARIES = {
    "trtllm-serve": "tensorrt-llm",
    "llama-server": "llama.cpp",
    "text-generation-launcher": "tgi",
}
_WITH_VERB = {"vllm": "vllm", "sglang": "sglang", "ollama": "ollama"}
#: Where a script's file is the server (`python3 /opt/vllm/…/api_server.py`).
_FILES = {"launch_server.py": "sglang", "api_server.py": "vllm"}


def find_server(words: Sequence[Word]) -> tuple[str, int] | None:
    """Return the engine whose server these words start, and where its arguments begin."""
    for i, word in enumerate(words):
        base = _base(word.value)
        following = words[i + 1].value if i + 1 < len(words) else ""
        if base in _WITH_VERB and following == "serve":
            return _WITH_VERB[base], i + 2
        if base in _BINARIES:
            return _BINARIES[base], i + 2 if following == "serve" else i + 1
        if word.value == "-m" and following in _MODULES:
            verb = following.endswith("cli.main") and i + 2 < len(words)
            return _MODULES[following], i + 3 if verb and words[i + 2].value == "serve" else i + 2
        if base in _FILES and i and _base(words[i - 1].value).startswith("python"):
            return _FILES[base], i + 1
    return None


#: Texts in an image's name that tell which server its entrypoint starts.
_IMAGES = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("tensorrt-llm", "tensorrt-llm"),
    ("text-generation-inference", "tgi"),
    ("llama.cpp", "llama.cpp"),
    ("llama-cpp", "llama.cpp"),
    ("ollama", "ollama"),
)
#: Engines whose images start the server by themselves, so that the command is its arguments.
_ENTRYPOINTS = {"vllm/vllm-openai", "llama.cpp", "text-generation-inference"}


def program_of_image(image: str) -> str | None:
    """Return the engine that an image's name speaks of."""
    return next((program for text, program in _IMAGES if text in image.lower()), None)


def starts_by_itself(image: str) -> bool:
    """Say whether the words after such an image are arguments of its server."""
    return any(text in image.lower() for text in _ENTRYPOINTS)


def read_server(words: Sequence[Word], line: Line, image: str | None = None) -> Server | None:
    """Sort a server's command line; None where the words start no known server.

    Args:
        words: The command.
        line: The line of a word.
        image: The image that it runs in, whose entrypoint may be the server.
    """
    found = find_server(words)
    if found is None:
        first = words[0].value if words else "-"
        if image is None or not starts_by_itself(image):
            return None
        program = program_of_image(image)
        known = first.startswith("-") or "/" in first
        if program is None or not known or first.startswith(("/bin/", "/usr/bin/")):
            return None
        found = program, 0
    program, start = found
    return _sorted(program, words, start, line)


def _sorted(program: str, words: Sequence[Word], start: int, line: Line) -> Server:
    model: Word | None = None
    arguments: list[Option] = []
    rest: list[Word] = []
    i = start
    while i < len(words):
        if words[i].value.startswith("-") and not _is_number(words[i].value):
            option, used = _argument(program, words, i, line)
            arguments.append(option)
            i += used
            continue
        if model is None and not rest:
            model = words[i]
        else:
            rest.append(words[i])
        i += 1
    return Server(program, tuple(words[:start]), model, tuple(arguments), tuple(rest), tuple(words))


def _is_number(value: str) -> bool:
    return re.match(r"-\d+(?:\.\d+)?\Z", value) is not None


def _argument(program: str, words: Sequence[Word], i: int, line: Line) -> tuple[Option, int]:
    word = words[i]
    text, equals, value = word.value.partition("=")
    short = grammar.SHORT.get(program, {})
    name, key = canonical(text, short)
    if equals:
        return Option(name, value, (word,), line(word), joined=True, key=key), 1
    if program == "vllm" and re.match(r"-O[0-9]\Z", text):
        return Option(short["-O"], text[2:], (word,), line(word), joined=True), 1
    end = i + 1
    while end < len(words) and (
        not words[end].value.startswith("-") or _is_number(words[end].value)
    ):
        end += 1
    if end == i + 1 or grammar.is_switch(name):
        return Option(name, None, (word,), line(word), key=key), 1
    if end > i + 2 and name not in grammar.SEVERAL:
        end = i + 2
    values = words[i + 1 : end]
    joined = " ".join(w.value for w in values)
    return Option(name, joined, (word, *values), line(word), key=key), end - i


def canonical(text: str, short: dict[str, str] | None = None) -> tuple[str, str]:
    """Return an option's long name with dashes, and what stands after a dot."""
    name, dot, key = text.partition(".")
    name = (short or {}).get(name, name)
    if name.startswith("--"):
        name = "--" + name[2:].replace("_", "-")
    return name, key if dot else ""
