"""Reports: what a person or a program sees, and that no log line can do more than be shown."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec.structs import replace

from forensics.analysis import examine_bytes
from forensics.model import Context, Diagnosis
from forensics.reporters import REPORTERS, View
from forensics.reporters.markdown import code, escape, fenced
from forensics.reporters.rule import render as render_rule
from forensics.reporters.view import cells, cut, visible
from tests.support import (
    engine,
    failed_start,
    loaded,
    logged,
    raw,
    rule,
    serving,
    started,
    stopped,
    text,
    traceback,
)

FIX = {"action": "set_argument", "target": "--dtype", "value": "half", "why": "It fits {what}.",
       "confidence": 0.9, "reference": "https://example.org/x"}  # fmt: skip
RULES = (
    rule(
        "vllm.root",
        {"line": "ValueError: (?P<what>.+)$"},
        title="It broke at {what}",
        cause="What was printed is {what}, which a person should read in full sentences. " * 3,
        fixes=[FIX, {**FIX, "action": "upgrade", "target": "vllm", "value": "9.9"}],
        next_steps=[{"command": "run it again with {what}", "why": "w" * 200, "tells": "t {what}"}],
        references=["https://example.org/" + "a" * 90],
        confidence=0.8,
    ),
    rule("vllm.core", {"line": "^EngineCore failed"}, role="symptom", title="The engine failed"),
    rule("vllm.note", {"line": "^Loading weights took"}, role="advice", severity="info", title="{model} is slow",
         fixes=[FIX]),
    rule("vllm.other", {"line": "^Resolved architecture"}, role="contributing", severity="warning"),
    rule("vllm.lost", {"line": "ValueError"}, priority=1),
)  # fmt: skip
PREPARED = engine(*RULES)


def examined(log: str, **view: Any) -> tuple[Diagnosis, View]:  # noqa: ANN401 - as `View` has them
    diagnosis, triage, evidence = examine_bytes(log.encode(), PREPARED, Context())
    extra = {"excerpts": evidence.excerpts, "considered": triage.considered, **view}
    return diagnosis, View(**extra)


def report(format_: str, log: str, **view: Any) -> str:  # noqa: ANN401 - as `View` has them
    return REPORTERS[format_](*examined(log, **view))


def failing(message: str) -> str:
    return text(started(), loaded(), failed_start(f"ValueError: {message}")[4:])


LOGS = {
    "failed start": failing("head size 42 is not supported"),
    "long message": failing("x" * 900),
    "many words": failing("word " * 300),
    "wide letters": failing("模型不支持 " * 60),
    "wide word": failing("模型不支持的头大小" * 40),
    "unknown failure": text(started(), raw("EngineCore", traceback("TypeError: " + "y" * 300))),
    "wide unknown failure": text(started(), raw("EngineCore", traceback("TypeError: " + "模型" * 300))),
    "cut": text(started(arguments="{'model': '/models/" + "m" * 300 + "'}")),
    "healthy": text(started(), loaded(), serving(), stopped()),
    "nobody's": "hello\n" * 3,
    "hostile": failing("\x1b[31mred\x1b[0m \x07 \x9b31m \u202egnp.exe \u2066x\u2069 \x00 \u200b"),
    "long neighbours": text(started(), ["n" * 500], raw("EngineCore", traceback("ValueError: z")), ["é" * 500]),
}  # fmt: skip


# ----------------------------------------------------------------------------------------- terminal


@pytest.mark.parametrize("width", [80, 60, 100])
@pytest.mark.parametrize("log", LOGS.values(), ids=list(LOGS))
def test_no_line_of_the_report_is_wider_than_the_terminal(log: str, width: int) -> None:
    """Addresses are not broken: they are to be copied."""
    lines = report("terminal", log, width=width, verbose=True).splitlines()

    wide = [line for line in lines if cells(line) > width and "https://" not in line]
    assert wide == []


@pytest.mark.parametrize("log", LOGS.values(), ids=list(LOGS))
def test_report_without_colour_is_plain_text(log: str) -> None:
    shown = report("terminal", log)

    assert "\x1b" not in shown


def test_colour_only_marks_what_the_words_already_say() -> None:
    plain, coloured = (report("terminal", LOGS["failed start"], color=c) for c in (False, True))

    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


@pytest.mark.parametrize("format_", ["terminal", "text", "markdown"])
def test_nothing_in_a_log_can_drive_the_terminal(format_: str) -> None:
    """Controls and letters that change direction are shown as what they are."""
    shown = report(format_, LOGS["hostile"])

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", shown)
    assert "<U+202E>" in shown.replace("\\", "")
    assert "\u2407" in shown
    assert "\u2400" in shown


def test_first_line_is_the_verdict() -> None:
    assert report("terminal", LOGS["failed start"]).startswith(
        "DIAGNOSED  It broke at head size 42 is not supported\n"
    )
    assert report("terminal", LOGS["healthy"]).startswith("HEALTHY  ")
    assert report("terminal", LOGS["nobody's"]).startswith("NO EVIDENCE  ")
    assert report("terminal", LOGS["unknown failure"]).startswith("SUSPECTED  TypeError")
    assert report("terminal", LOGS["cut"]).startswith("INCONCLUSIVE  ")


def test_report_quotes_the_root_with_its_number_and_neighbours() -> None:
    diagnosis, _ = examined(LOGS["failed start"])
    assert diagnosis.root_cause is not None
    number = diagnosis.root_cause.line

    shown = report("terminal", LOGS["failed start"])

    assert f"> {number} | " in shown
    assert f"  {number - 1} | " in shown
    assert f"  {number + 1} | " in shown


def test_report_says_why_other_rules_lost() -> None:
    shown = report("terminal", LOGS["failed start"])

    assert "Rules considered" in shown
    assert "vllm.lost" in shown
    assert "Rules considered" not in report("terminal", LOGS["failed start"], considered=None)


ANY = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=120
).filter(str.strip)


FAILED, FAILED_VIEW = examined(LOGS["failed start"])


def dressed(message: str) -> Diagnosis:
    """A diagnosis with this text in every place where text of a log can be."""
    root = FAILED.root_cause
    assert root is not None
    assert root.exception is not None
    findings = [
        replace(
            f,
            title=message,
            cause=message,
            evidence=[replace(c, text=message) for c in f.evidence],
            fixes=[replace(x, text=message, why=message, target=message) for x in f.fixes],
        )
        for f in FAILED.findings
    ]
    return replace(
        FAILED,
        run=replace(FAILED.run, model=message, engine_version=message),
        root_cause=replace(root, text=message, process=message,
                           exception=replace(root.exception, message=message)),
        findings=findings,
        next_steps=[replace(s, command=message, why=message, tells=message) for s in FAILED.next_steps],
        limits=[message],
    )  # fmt: skip


@given(ANY, st.integers(50, 100))
def test_any_text_is_shown_within_the_width(message: str, width: int) -> None:
    view = replace(FAILED_VIEW, width=width, verbose=True)

    shown = REPORTERS["terminal"](dressed(message), view)

    assert [x for x in shown.split("\n") if cells(x) > width and "https://" not in x] == []
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


# ---------------------------------------------------------------------------------------------- view


@pytest.mark.parametrize(
    ("unsafe", "shown"),
    [
        ("\x1b[2J", "\u241b[2J"),
        ("\x00\x07\x7f", "\u2400\u2407\u2421"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\u202eb", "a<U+202E>b"),
        ("\u200b\ufeff\u00ad", "<U+200B><U+FEFF><U+00AD>"),
        ("\U000e0041", "<U+E0041>"),
        ("\u2028", "<U+2028>"),
        ("a\nb\rc", "a\u240ab\u240dc"),
        ("a\tb", "a    b"),
        ("é模█…", "é模█…"),
    ],
)
def test_unsafe_characters_become_visible(unsafe: str, shown: str) -> None:
    assert visible(unsafe) == shown


@given(st.text(max_size=80), st.integers(12, 60))
def test_cut_text_fits(value: str, width: int) -> None:
    shown = cut(visible(value), width)

    assert cells(shown) <= width
    assert shown == visible(value) or " … " in shown


# ------------------------------------------------------------------------------------------ markdown

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = [
    "``` \n# heading",
    "````",
    "`code` `` ``` ````",
    "</pre><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](https://evil.example) ![x](https://evil.example/x.png)",
    "**bold** _it_ ~~gone~~",
    "# heading",
    "- item",
    "1. item",
    "| a | b |",
    "> quote",
    "---",
    "&lt;b&gt; &amp;",
    "\\` \\[x\\](y)",
    "<https://evil.example>",
    "[ref]: https://evil.example",
    "@everyone #1",
    "trailing \\",
]
ALLOWED = {
    "heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "fence", "text",
    "code_inline", "ordered_list_open", "ordered_list_close", "bullet_list_open", "bullet_list_close",
    "list_item_open", "list_item_close", "em_open", "em_close", "softbreak", "text_special",
}  # fmt: skip


def tokens(markdown: str) -> list[Token]:
    flat: list[Token] = []
    for token in MARKDOWN.parse(markdown):
        flat += [token, *(token.children or [])]
    return flat


def assert_tame(markdown: str) -> None:
    found = tokens(markdown)

    html = [t.content for t in found if t.type.startswith("html") and t.content != "<!-- -->"]
    others = {t.type for t in found if not t.type.startswith("html")} - ALLOWED
    assert html == []
    assert others == set()
    assert sum(t.type == "heading_open" for t in found) == 1
    assert sum(t.type == "fence" for t in found) <= 1


@pytest.mark.parametrize("message", HOSTILE)
def test_markdown_cannot_be_broken_out_of(message: str) -> None:
    """One heading and one code block, whatever a log line holds."""
    shown = report("markdown", failing(message.replace("\n", " ")))

    assert_tame(shown)
    (block,) = (t for t in tokens(shown) if t.type == "fence")
    assert visible(message.replace("\n", " ")).rstrip() in block.content


@given(st.text("`~*_[]()<>#!|\\&@-+=.1 a\t\u202e", min_size=1, max_size=40).filter(str.strip))
def test_any_mix_of_markup_stays_text(message: str) -> None:
    assert_tame(REPORTERS["markdown"](dressed(message), FAILED_VIEW))


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Zs", "Zl", "Zp", "Cc")), min_size=1, max_size=60))  # fmt: skip
def test_escaped_text_reads_as_it_was(value: str) -> None:
    """What a reader sees is the text itself, without the escapes."""
    read = "".join(
        t.content for t in tokens("x " + escape(value)) if t.type in {"text", "text_special"}
    )

    assert read == "x " + visible(value)


@given(st.text("` a\\", max_size=20).filter(str.strip))
def test_code_holds_the_text_whole(value: str) -> None:
    (span,) = (t for t in tokens(f"x {code(value)} y") if t.type == "code_inline")

    assert span.content.strip() == visible(value).strip()


@given(st.text("`~ a\n\\", max_size=40))
@example("```\nx")
def test_code_block_ends_where_it_should(value: str) -> None:
    found = tokens(fenced(value) + "\n\nafter")

    assert [t.type for t in found] == [
        "fence",
        "paragraph_open",
        "inline",
        "text",
        "paragraph_close",
    ]


# ---------------------------------------------------------------------------------------------- JSON

#: The contract: exactly these keys, in this order.
CONTRACT: dict[str, list[str]] = {
    "": ["schema", "tool", "source", "run", "verdict", "outcome", "timeline", "last_milestone", "root_cause",
         "findings", "suggested_launch", "next_steps", "limits"],
    "tool": ["version", "rules"],
    "tool.rules": ["count", "digest"],
    "source": ["kind", "name", "bytes", "lines", "envelope", "truncated"],
    "run": ["id", "engine", "engine_version", "image", "digest", "container", "launch", "arguments", "model",
            "hardware", "exit_code", "oom_killed", "started_at", "finished_at"],
    "run.hardware": ["gpu", "compute_capability", "arch"],
    "timeline[]": ["milestone", "line", "at", "seconds", "source"],
    "root_cause": ["line", "text", "process", "exception", "rule", "fingerprint", "source"],
    "root_cause.exception": ["type", "message"],
    "findings[]": ["rule", "title", "severity", "role", "confidence", "caused_by", "cause", "evidence",
                   "captures", "fixes", "references", "count"],
    "findings[].evidence[]": ["line", "text", "process", "at", "source"],
    "findings[].fixes[]": ["action", "target", "value", "text", "why", "confidence", "safety", "reference"],
    "next_steps[]": ["command", "why", "tells"],
}  # fmt: skip


def reached(data: Any, path: str) -> list[Any]:  # noqa: ANN401 - JSON data
    """All values at a path; `[]` means each item."""
    values = [data]
    for part in filter(None, path.split(".")):
        name, many = part.removesuffix("[]"), part.endswith("[]")
        values = [v[name] for v in values if v[name] is not None]
        if many:
            values = [item for v in values for item in v]
    return values


@pytest.mark.parametrize("path", list(CONTRACT))
def test_json_is_the_contract(path: str) -> None:
    data = json.loads(report("json", LOGS["failed start"]))

    found = reached(data, path)

    assert found
    for value in found:
        assert list(value) == CONTRACT[path]


@pytest.mark.parametrize("log", LOGS.values(), ids=list(LOGS))
def test_json_has_all_keys_and_words_of_the_contract_always(log: str) -> None:
    data = json.loads(report("json", log))

    assert list(data) == CONTRACT[""]
    assert data["schema"] == "forensics/diagnosis/1"
    assert data["verdict"] in {"diagnosed", "suspected", "inconclusive", "healthy", "no_evidence"}
    assert data["outcome"] in {
        "served", "failed_startup", "crashed", "killed", "stopped", "starting", "unknown",
    }  # fmt: skip
    for key in ("timeline", "findings", "next_steps", "limits"):
        assert isinstance(data[key], list)
    if data["verdict"] == "healthy":
        assert data["root_cause"] is None
        assert not [f for f in data["findings"] if f["severity"] in {"fatal", "error"}]
    lines = log.split("\n")
    if data["root_cause"]:
        assert 1 <= data["root_cause"]["line"] <= len(lines)
        assert re.fullmatch(r"[0-9a-f]{16}", data["root_cause"]["fingerprint"])


def test_same_bytes_give_the_same_bytes() -> None:
    first, second = (report("json", LOGS["failed start"]) for _ in range(2))

    assert first == second


def test_json_of_several_sources_is_one_line_each() -> None:
    assert report("json", LOGS["failed start"], several=True).count("\n") == 1
    assert report("json", LOGS["failed start"]).count("\n") > 50


# --------------------------------------------------------------------------------------- one rule


@pytest.mark.parametrize("width", [60, 80])
def test_rule_is_shown_within_the_width(width: int) -> None:
    lines = render_rule(RULES[0], "rules/vllm/root.yaml", width).splitlines()

    assert lines[0] == "vllm.root"
    assert [line for line in lines if cells(line) > width and "https://" not in line] == []


def test_neighbouring_process_is_named() -> None:
    log = text(started(), logged("Worker_TP1", traceback("ValueError: x"), "ERROR", pid=9))

    assert "Worker_TP1" in report("terminal", log)
