"""Fixes to changed text: each fix edits the launch where it stands, and is read back as proof.

Only exact values are ever written: a placeholder in angle brackets or a sentence is advice and
stays text. A fix whose effect cannot be read back from the changed text counts as not applied.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forensics.errors import SourceError
from forensics.launch import grammar
from forensics.launch.commandline import canonical
from forensics.launch.forms import Form, same_thing
from forensics.launch.model import Applied, CannotChange, Launch, Option, Splice, spliced
from forensics.launch.values import arguments, typed
from forensics.model import Finding, FixAdvice

Read = Callable[[str], Form]

_TEXT_ONLY = {
    "upgrade": "which image holds that version is for you to choose",
    "downgrade": "which image holds that version is for you to choose",
    "change_host": "it is done on the host, not in the launch",
    "wait_for_fix": "nothing in the launch mends it",
    "report_upstream": "nothing in the launch mends it",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"--?[A-Za-z][\w-]*(?:\.[\w.-]+)?\Z")
_VARIABLE = re.compile(r"[A-Za-z_]\w*\Z")
_REFERENCE = re.compile(r"[a-z0-9][\w./:-]*(?:@sha256:[0-9a-f]{64})?\Z")
#: Options whose value is a command or a path and may hold blanks.
_FREE = {"--health-cmd", "--label", "--annotation"}
_MAX_ALTERNATIVES = 6


class Suggestion(Struct, frozen=True):
    """A changed launch.

    Attributes:
        text: The whole text, changed.
        applied: What was changed, in order.
        refused: What was not, and why.
    """

    text: str
    applied: tuple[Applied, ...]
    refused: tuple[Applied, ...]


def exact(fix: FixAdvice) -> str | None:
    """Return why a fix must not be written into a command, None if it may."""
    value, target = fix.value, fix.target
    if fix.action in _TEXT_ONLY:
        return _TEXT_ONLY[fix.action]
    vague = re.compile(r"<[^>]*>|…|\.\.\.|\{[A-Za-z_][\w.]*\}")
    if vague.search(target) or (value is not None and vague.search(value)):
        return "what exactly to write is for you to fill in"
    if value is not None and _CONTROL.search(value):
        return "its value holds control characters"
    if fix.action in {"switch_image", "pin_digest"}:
        if value is None:
            return "which image is for you to say"
        _, colon, _ = value.rpartition("/")[2].partition(":")
        known = _REFERENCE.match(value) and (colon or "@" in value)
        return None if known else "which tag or digest is for you to say"
    if fix.action in {"set_env", "unset_env"}:
        return None if _VARIABLE.match(target) else "it names no single variable"
    if fix.action == "remove_argument":
        return None if target.startswith("-") else "it names no single option"
    if not _NAME.match(target) and "healthcheck." not in target:
        return "it names no single option"
    if value is None or target in _FREE or isinstance(typed(value), dict | list):
        return None
    return "its value is a sentence, not a value" if re.search(r"\s", value) else None


def change(form: Form, fix: FixAdvice) -> list[Splice]:
    """Return the splices that make a fix.

    Raises:
        CannotChange: The form cannot, or the fix is no exact one.
    """
    reason = exact(fix)
    if reason is not None:
        raise CannotChange(reason)
    action, target, value = fix.action, fix.target, fix.value
    if action in {"switch_image", "pin_digest"}:
        assert value is not None  # noqa: S101 - `exact` asked
        return form.set_image(value)
    if action == "set_env":
        if value is None:
            raise CannotChange("which value it should have is for you to say")
        return form.set_variable(target, value)
    if action == "unset_env":
        return form.set_variable(target, None)
    if action == "runtime_option":
        name = _canonical(target)
        return (
            form.drop_option(name)
            if (name, value) == ("--rm", "false")
            else form.set_option(name, value)
        )
    if action == "remove_argument" and _of_the_runtime(form.launch, target):
        return form.drop_option(_canonical(target))
    if form.launch.program is None:
        raise CannotChange("no server's command line was recognised")
    if action == "remove_argument":
        words = [w for w in target.split() if re.match(r"--?[A-Za-z]", w)]
        return [s for word in words for s in form.remove_argument(word.partition("=")[0])]
    if action == "rename_argument":
        if value is None or not _NAME.match(value):
            raise CannotChange("its new name is for you to say")
        return form.rename_argument(target, value)
    if value is None and not grammar.is_switch(canonical(target)[0]):
        meant = form.requoted(target)
        if meant is not None:
            return meant
        raise CannotChange("which value it should have is for you to say")
    return form.set_argument(target, value)


def _canonical(target: str) -> str:
    """Return the long name of an option of the container runtime."""
    return grammar.RUN_ALIASES.get(target, grammar.RUN_SHORT.get(target, target))


def _of_the_runtime(launch: Launch, target: str) -> bool:
    """Say whether an argument to remove is one of `docker run` and not one of the server."""
    name = _canonical(target.strip())
    return launch.argument(name) is None and any(o.name == name and o.words for o in launch.options)


def holds(launch: Launch, fix: FixAdvice) -> bool:
    """Say whether a launch is as a fix wants it (read back from the text)."""
    action, target, value = fix.action, fix.target, fix.value
    if action in {"switch_image", "pin_digest"}:
        return launch.image == value
    if action in {"set_env", "unset_env"}:
        variable = launch.variable(target)
        if action == "unset_env":
            return variable is None
        return (variable is not None and (value or "").startswith("$")) or (
            variable is not None and variable.value == value
        )
    if action == "runtime_option":
        return _option_holds(launch, target, value)
    name, key = canonical(target.split()[0].partition("=")[0])
    path = [name.lstrip("-").replace("-", "_"), *(key.split(".") if key else [])]
    have = arguments(launch.arguments)
    if action == "remove_argument":
        return _dig(have, path) is None and not _of_the_runtime(launch, target)
    if action == "rename_argument":
        new, new_key = canonical(value or "")
        return launch.argument(new, new_key) is not None or (
            _dig(have, [new.lstrip("-").replace("-", "_"), *new_key.split(".")]) is not None
        )
    if value is None and not grammar.is_switch(name):
        return isinstance(_dig(have, path), dict)  # it was requoted
    if value is None:
        switch = path[0].removeprefix("no_")
        return have.get(switch) is (not path[0].startswith("no_"))
    wanted, got = typed(value), _dig(have, path)
    if isinstance(wanted, dict) and isinstance(got, dict):
        return all(got.get(k) == v or isinstance(v, dict) for k, v in wanted.items())
    return got == wanted or str(got) == value


def _option_holds(launch: Launch, target: str, value: str | None) -> bool:
    name = _canonical(target)
    found = [o for o in launch.options if o.name == name]
    if value == "false":
        return not found
    if value is None or name in grammar.RUN_SWITCHES or "healthcheck" in name:
        return bool(found) or "healthcheck" in name
    same = [o.value for o in found if o.value is not None]
    home = value.replace("$HOME", "~")
    loose = {v.replace("$HOME", "~").replace("%h", "~") for v in same}
    if name in grammar.RUN_LISTS:
        return home in loose or any(same_thing(name, v, value) and v == value for v in same)
    return bool(same) and (same[-1] == value or name in {"--memory", "--gpus", "--shm-size"})


def _dig(data: object, path: Sequence[str]) -> object:
    for key in path:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


# --- several fixes -----------------------------------------------------------------------------


def apply_one(form: Form, fix: FixAdvice, read: Read) -> Form:
    """Return the form of the text with one fix applied.

    Args:
        form: The launch.
        fix: The fix.
        read: Reads a changed text again, as the same launch.

    Raises:
        CannotChange: It cannot be applied, changes nothing, or cannot be read back.
    """
    splices = change(form, fix)
    text = spliced(form.launch.text, splices)
    if text == form.launch.text:
        if holds(form.launch, fix):
            raise CannotChange("the launch is already so")
        raise CannotChange("the launch has nothing of that name")
    try:
        new = read(text)
    except SourceError:
        raise CannotChange("the changed text could not be read back") from None
    if not holds(new.launch, fix) or not _rest_same(form.launch, new.launch, fix):
        raise CannotChange("it does not fit into the way this launch is written")
    return new


def _rest_same(old: Launch, new: Launch, fix: FixAdvice) -> bool:
    """Say whether a change left alone what it does not speak of."""
    if fix.action not in {"switch_image", "pin_digest"} and old.image != new.image:
        return False
    if fix.action in {"switch_image", "pin_digest"}:
        return len(old.words) == len(new.words)
    if old.program != new.program or old.model != new.model:
        return False
    of_server = "argument" in fix.action and not _of_the_runtime(old, fix.target)
    if of_server:
        same = _pairs(old.options) == _pairs(new.options)
        return same and len(old.environment) == len(new.environment)
    return _pairs(old.arguments) == _pairs(new.arguments)


def _pairs(options: Iterable[Option]) -> list[tuple[str, str | None]]:
    return [(option.name, option.value) for option in options]


def slot(fix: FixAdvice) -> tuple[str, str]:
    """Return what a fix changes: two fixes of one slot exclude each other."""
    if fix.action in {"switch_image", "pin_digest", "upgrade", "downgrade"}:
        return "image", ""
    if fix.action in {"set_env", "unset_env"}:
        return "env", fix.target
    if fix.action == "runtime_option":
        name = _canonical(fix.target)
        listed = name in grammar.RUN_LISTS
        return "option", f"{name} {fix.value}" if listed else name
    name, key = canonical(fix.target.split()[0].partition("=")[0] if fix.target.strip() else "")
    name = f"--{name[5:]}" if name.startswith("--no-") else name
    return "argument", f"{name}.{key}" if key else name


def excludes(slots: Iterable[tuple[str, str]], fix: FixAdvice) -> bool:
    """Say whether a fix changes what another has changed (or a part of it)."""
    kind, name = slot(fix)
    return any(
        kind == k and (name == n or name.startswith(f"{n}.") or n.startswith(f"{name}."))
        for k, n in slots
    )


def suggest(form: Form, chosen: Iterable[tuple[str, FixAdvice]], read: Read) -> Suggestion:
    """Apply fixes one after another.

    Args:
        form: The launch.
        chosen: (rule, fix) in order; a later one that excludes itself with an earlier one is
            refused.
        read: Reads a changed text again, as the same launch.
    """
    applied: list[Applied] = []
    refused: list[Applied] = []
    slots: list[tuple[str, str]] = []
    for rule, fix in chosen:
        one = Applied(fix.action, fix.target, fix.value, fix.text, fix.why, fix.safety, rule)
        if excludes(slots, fix):
            if slot(fix) not in slots or not holds(form.launch, fix):
                refused.append(replace(one, problem="another change excludes it"))
            continue
        try:
            form = apply_one(form, fix, read)
        except CannotChange as reason:
            refused.append(replace(one, problem=str(reason)))
            continue
        slots.append(slot(fix))
        applied.append(one)
    return Suggestion(form.launch.text, tuple(applied), tuple(refused))


def first_of_each(
    findings: Iterable[Finding], form: Form, read: Read
) -> list[tuple[str, FixAdvice]]:
    """Choose for each finding its best fix that can be applied; text-only ones are kept too."""
    chosen: list[tuple[str, FixAdvice]] = []
    for finding in findings:
        for fix in finding.fixes:
            try:
                apply_one(form, fix, read)
            except CannotChange:
                continue
            chosen.append((finding.rule, fix))
            break
        else:
            chosen += [(finding.rule, fix) for fix in finding.fixes[:1]]
    return chosen


def alternatives(
    findings: Iterable[Finding], form: Form, read: Read, taken: Iterable[FixAdvice]
) -> list[Suggestion]:
    """Return what else would do, each alone: fixes that were not taken."""
    had = list(taken)
    found: list[Suggestion] = []
    for finding in findings:
        for fix in finding.fixes:
            if fix in had or len(found) >= _MAX_ALTERNATIVES:
                continue
            had.append(fix)
            one = suggest(form, [(finding.rule, fix)], read)
            if one.applied:
                found.append(one)
    return found


def diff(old: str, new: str, name: str) -> str:
    """Return a unified diff that `patch` takes."""
    out = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in out
    )
