"""The arguments that a log printed, back to a command: what is left when nothing else is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forensics.launch import quoting
from forensics.launch.values import as_text

#: How each server is started, and whether the model stands without an option.
_COMMANDS = {
    "vllm": ("vllm serve", True),
    "sglang": ("python3 -m sglang.launch_server", False),
    "tensorrt-llm": ("trtllm-serve", True),
    "tgi": ("text-generation-launcher", False),
    "llama.cpp": ("llama-server", False),
}
#: Names that vLLM prints among its arguments and that are no options.
_NOT_OPTIONS = {"model_tag", "subparser", "dispatch_function", "config"}


def to_script(engine: str, arguments: Mapping[str, Any], model: str | None) -> str | None:
    """Return the command that a log's arguments stand for, None where the engine is not known.

    Args:
        engine: The engine's name.
        arguments: Values by name with underscores, as printed (only what differs from defaults).
        model: The model.
    """
    known = _COMMANDS.get(engine)
    if known is None or not arguments:
        return None
    command, positional = known
    lines = [command]
    left = {k: v for k, v in arguments.items() if k not in _NOT_OPTIONS}
    if positional and model:
        lines = [f"{command} {quoting.shell(model)}"]
        left.pop("model", None)
    for name, value in left.items():
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if value is True:
            lines.append(f"  {option}")
        elif value is False:
            lines.append(f"  --no-{name.replace('_', '-')}")
        elif isinstance(value, list) and all(isinstance(v, str | int) for v in value):
            lines.append(f"  {option} {' '.join(quoting.shell(str(v)) for v in value)}")
        else:
            lines.append(f"  {option} {quoting.shell(as_text(value))}")
    return " \\\n".join(lines) + "\n"
