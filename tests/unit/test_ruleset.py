"""Rule files are read strictly: every mistake names file, line and key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from forensics import ruleset, yamlio
from forensics.errors import RuleError
from forensics.rules_schema import All, AnyOf, LineLeaf, NoneOf, Rule, VersionLeaf
from forensics.ruleset import RuleSet, captures_of, digest_of, load_all, parse_rule, placeholders
from tests.support import rule, rule_text

GOOD = """\
id: vllm.example
title: It broke
severity: fatal
role: root_cause
match:
  all:
    - line: 'needle (?P<n>\\d+)'
    - argument: {name: port, op: gt, value: 1}
cause: >
  It broke at {n}.
fixes:
  - action: set_argument
    target: --port
    value: 8000
    why: It is free.
    confidence: 0.9
tests:
  match:
    - log: needle 3
      captures: {n: 3}
  no_match:
    - log: hay
"""
NAME = "rules/vllm/example.yaml"


def test_good_rule_is_read() -> None:
    found = parse_rule(GOOD, NAME)

    assert found.id == "vllm.example"
    assert isinstance(found.match, All)
    assert found.fixes[0].value == "8000"
    assert found.tests.match[0].captures == {"n": "3"}


# -------------------------------------------------------------------------------------------- typos

#: What is changed in the good rule, the line and key that the message must name, and its words.
TYPOS: dict[str, tuple[tuple[str, str], int | None, str, str]] = {
    "unknown key": (("severity: fatal", "severity: fatal\nserverity: x"), 4, "serverity", "unknown key"),
    "unknown key in a fix": (("    why:", "    wy:"), 15, "fixes[0].wy", "unknown key"),
    "unknown key in a leaf": (("{name: port, op: gt", "{name: port, operator: gt"), 8, "match.all[1].argument.operator", "unknown key"),
    "unknown key in a test": (("- log: hay", "- logs: hay"), 22, "tests.no_match[0].logs", "unknown key"),
    "unknown severity": (("severity: fatal", "severity: deadly"), 3, "severity", "deadly"),
    "unknown role": (("role: root_cause", "role: root"), 4, "role", "root"),
    "unknown action": (("action: set_argument", "action: set"), 12, "fixes[0].action", "set"),
    "unknown operator": (("op: gt", "op: bigger"), 8, "match.all[1].argument.op", "bigger"),
    "unknown condition": (("- line: 'needle", "- lines: 'needle"), 7, "match.all[0].lines", "unknown condition"),
    "missing title": (("title: It broke\n", ""), 1, "", "title is missing"),
    "missing match": (("match:\n  all:", "mach:\n  all:"), 1, "match", "missing"),
    "missing why": (("    why: It is free.\n", ""), 12, "fixes[0]", "why is missing"),
    "missing tests": (("tests:\n  match:", "testing:\n  match:"), 17, "testing", "unknown key"),
    "text for a number": (("confidence: 0.9", "confidence: high"), 16, "fixes[0].confidence", "float"),
    "number for a text": (("title: It broke", "title: 3"), 2, "title", "str"),
    "list for a text": (("title: It broke", "title: [It, broke]"), 2, "title", "str"),
    "text for a list": (("fixes:\n  - action: set_argument\n    target: --port\n    value: 8000\n    why: It is free.\n    confidence: 0.9\n", "fixes: none\n"), 11, "fixes", "array"),
    "no list under all": (("  all:\n    - line: 'needle (?P<n>\\d+)'\n    - argument: {name: port, op: gt, value: 1}", "  all:\n    line: x"), 6, "match.all", "takes a list"),
    "empty list under all": (("  all:\n    - line: 'needle (?P<n>\\d+)'\n    - argument: {name: port, op: gt, value: 1}", "  all: []"), 6, "match.all", "takes a list"),
    "empty condition": (("  all:\n    - line: 'needle (?P<n>\\d+)'\n    - argument: {name: port, op: gt, value: 1}", "  {}"), 5, "match", "a condition is a mapping"),
    "bad pattern": (("needle (?P<n>\\d+)", "needle (?P<n>\\d+"), 5, "match", "bad pattern"),
    "other id": (("id: vllm.example", "id: vllm.exampel"), 1, "id", "must be vllm.example"),
    "id in capitals": (("id: vllm.example", "id: VLLM.Example"), 1, "id", "must be vllm.example"),
    "confidence of the rule": (("severity: fatal", "confidence: 9\nseverity: fatal"), 3, "confidence", "between 0 and 1"),
    "key twice": (("severity: fatal", "severity: fatal\nseverity: error"), 4, "severity", "twice"),
    "tab": (("severity: fatal", "\tseverity: fatal"), 3, "", "not valid YAML"),
    "quote left open": (("title: It broke", "title: 'It broke"), None, "", "not valid YAML"),
    "colon in a text": (("title: It broke", "title: It: broke"), 2, "", "not valid YAML"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "line", "key", "words"), TYPOS.values(), ids=[k.replace(" ", "-") for k in TYPOS]
)
def test_mistake_is_named_with_file_line_and_key(
    change: tuple[str, str], line: int | None, key: str, words: str
) -> None:
    assert change[0] in GOOD
    with pytest.raises(RuleError) as caught:
        parse_rule(GOOD.replace(*change, 1), NAME)

    error = caught.value
    assert error.file == NAME
    assert str(error).startswith(f"{NAME}:")
    assert words in str(error)
    assert line is None or error.line == line
    assert (error.key or "") == key
    assert "\n" not in str(error)


@pytest.mark.parametrize("text", ["", "[]", "3", "text", "null"])
def test_file_that_holds_no_mapping(text: str) -> None:
    with pytest.raises(RuleError, match=r"one mapping|twice|missing"):
        parse_rule(text, NAME)


T = TypeVar("T")


def outcome(read: Callable[[], T]) -> T | RuleError:
    """What a reader gives, or the one error that it may raise."""
    try:
        return read()
    except RuleError as error:
        return error


@given(st.data())
def test_rule_with_any_value_replaced_is_read_or_refused(data: st.DataObject) -> None:
    """A file of somebody else never ends in a traceback."""
    document = yaml.safe_load(GOOD)
    key = data.draw(st.sampled_from(list(document)))
    document[key] = data.draw(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["all", "line", "log", "match", "when", "captures", "x"]), inner, max_size=3),
            max_leaves=6,
        )
    )  # fmt: skip
    found = outcome(lambda: parse_rule(yaml.safe_dump(document), NAME))
    assert isinstance(found, Rule) or found.file == NAME


# --------------------------------------------------------------------------------------------- YAML


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x 1\nb: *x\n", "anchors and aliases"),
        ("a: &x 1\n", "anchors and aliases"),
        ("a: &x [1]\nb: {<<: *x}\n", "anchors and aliases"),
        ("a: !!python/object/apply:os.system [ls]\n", "is not allowed|not valid"),
        ("a: !mine 1\n", "tag !mine is not allowed"),
        ("a: !mine\n  b: 1\n", "tag !mine is not allowed"),
        ("a: !mine [1]\n", "tag !mine is not allowed"),
        ("a: 1\na: 2\n", "twice"),
        ("a: {b: 1, b: 2}\n", "twice"),
        ("1: a\n'1': b\n", "twice"),
        ("[" * 200 + "]" * 200, "nested too deeply"),
        ("a:\n" + "".join(" " * i + "- a:\n" for i in range(2, 400, 2)), "nested too deeply|not valid"),
        ("[" * 100_000, "nested too deeply|not valid"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: \x00\n", "not valid YAML"),
        ("a: '" + "x" * yamlio.MAX_BYTES + "'", "larger than"),
    ],
    ids=["alias", "anchor", "merge", "python", "tag", "tag-map", "tag-list", "twice", "flow", "int-key",
         "deep", "deep-block", "deeper", "two-documents", "nul", "large"],
)  # fmt: skip
def test_yaml_that_json_could_not_say_is_refused(text: str, words: str) -> None:
    """The one door through which YAML comes in is narrow."""
    with pytest.raises(RuleError, match=words) as caught:
        yamlio.load(text, "x.yaml")

    assert caught.value.file == "x.yaml"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: 2026-12-01\n", {"a": "2026-12-01"}),
        ("a: 2026-12-01 02:00:00\n", {"a": "2026-12-01 02:00:00"}),
        ("3: x\n", {"3": "x"}),
        ("true: x\n", {"true": "x"}),
        ("a: !!str 3\n", {"a": "3"}),
        ("a: [1, 2.5, true, null, x]\n", {"a": [1, 2.5, True, None, "x"]}),
        ("", None),
        ("# only a comment\n", None),
    ],
)
def test_plain_data_comes_out(text: str, data: object) -> None:
    assert yamlio.load(text, "x")[0] == data


def test_every_value_knows_its_line() -> None:
    _, places = yamlio.load("a: 1\nb:\n  - c: 2\n  - d: 3\n", "x")

    assert (places["$.a"], places["$.b"], places["$.b[0].c"], places["$.b[1].d"]) == (1, 2, 3, 4)


@given(st.text(max_size=200))
def test_any_text_is_data_or_an_error(text: str) -> None:
    found = outcome(lambda: yamlio.load(text, "x"))
    assert isinstance(found, tuple) or found.file == "x"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab:-#'\"{}[]&*!\n ", max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_what_json_says_is_read_as_json_reads_it(data: object) -> None:
    """JSON is YAML; nothing is changed on the way in."""
    assert yamlio.load(json.dumps(data), "x")[0] == data


# --------------------------------------------------------------------------------------- conditions


def test_several_keys_of_a_condition_mean_all() -> None:
    found = rule("a.b", {"line": "abc", "none": [{"line": "def"}], "version": {"vllm": ">1"}}).match

    assert isinstance(found, All)
    assert [type(item) for item in found.items] == [LineLeaf, NoneOf, VersionLeaf]


def test_short_and_long_forms_mean_the_same() -> None:
    assert rule("a.b", {"line": "abc"}).match == rule("a.b", {"line": {"pattern": "abc"}}).match
    assert rule("a.b", {"rule": "c.d"}).match == rule("a.b", {"rule": {"id": "c.d"}}).match
    one, many = {"exception": {"type": "X"}}, {"exception": {"type": ["X"]}}
    assert rule("a.b", one).match == rule("a.b", many).match


def test_captures_and_placeholders_are_collected_from_everywhere() -> None:
    found = rule(
        "a.b",
        {"any": [{"line": "x (?P<one>.)$"}, {"exception": {"message": "y (?P<two>.)$"}}]},
        title="{one}",
        cause="{two} and {argument.port}",
        fixes=[
            {
                "action": "set_argument",
                "target": "{t}",
                "value": "{v}",
                "why": "{w}",
                "confidence": 1,
            }
        ],
        next_steps=[{"command": "{c}", "why": "x", "tells": "y"}],
    )

    assert captures_of(found) == {"one", "two"}
    assert set(placeholders(found)) == {"one", "two", "argument.port", "t", "v", "w", "c"}
    assert isinstance(found.match, AnyOf)


# -------------------------------------------------------------------------------------------- packs


def pack(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_all_problems_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    folder = pack(
        tmp_path / "mine",
        a__one=rule_text("a.one", {"line": "x"}),
        a__two="id: a.two\n",
        a__three="id: [\n",
        a__four=rule_text("a.wrong", {"line": "x"}),
    )

    rules, errors = load_all([folder], builtin=False)

    assert [r.id for r in rules.rules] == ["a.one"]
    assert sorted(e.file for e in errors) == [
        "mine/a/four.yaml",
        "mine/a/three.yaml",
        "mine/a/two.yaml",
    ]


def test_file_that_is_no_text_is_reported(tmp_path: Path) -> None:
    folder = pack(tmp_path / "mine", a__one="x")
    (folder / "a" / "one.yaml").write_bytes(b"\xff\xfe")

    assert [str(e) for e in load_all([folder], builtin=False)[1]] == [
        "mine/a/one.yaml: not UTF-8 text"
    ]


def test_same_id_twice_in_one_pack_is_reported(tmp_path: Path) -> None:
    text = rule_text("a.one", {"line": "x"})
    folder = pack(tmp_path / "mine", a__one=text, sub__a__one=text)

    assert "a.one is already in" in str(load_all([folder], builtin=False)[1][0])


def test_later_pack_replaces_rules_of_an_earlier_one(tmp_path: Path) -> None:
    first = pack(tmp_path / "first", a__one=rule_text("a.one", {"line": "x"}, title="old"))
    second = pack(tmp_path / "second", a__one=rule_text("a.one", {"line": "x"}, title="new"),
                  tables__xids="xids: {}\n")  # fmt: skip

    rules, errors = load_all([first, second], builtin=False)

    assert errors == []
    assert [r.title for r in rules.rules] == ["new"]
    assert rules.files == {"a.one": "second/a/one.yaml"}
    assert rules.tables == {"xids": {"xids": {}}}


def test_missing_pack_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="none: no such folder of rules"):
        load_all([tmp_path / "none"], builtin=False)


def test_hidden_files_are_no_rules(tmp_path: Path) -> None:
    folder = pack(tmp_path / "mine", a__one=rule_text("a.one", {"line": "x"}))
    pack(folder, **{".hidden": "not a rule", ".git__x": "not a rule"})

    assert load_all([folder], builtin=False)[1] == []


def test_digest_covers_names_and_contents() -> None:
    files = [("a", b"x"), ("b", b"y")]

    assert digest_of(files) == digest_of(list(files))
    assert (
        len(
            {
                digest_of(f)
                for f in (files, files[:1], [("a", b"xb"), ("", b"y")], [("c", b"x"), ("b", b"y")])
            }
        )
        == 4
    )


def test_rules_survive_the_cache_unchanged() -> None:
    found = RuleSet((parse_rule(GOOD, NAME),), "d", {"vllm.example": NAME}, {"t": {"a": [1]}})

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=RuleSet) == found


# ------------------------------------------------------------------------------------ shipped rules


def test_shipped_rules_are_found_and_in_order() -> None:
    names = [name for name, _ in ruleset.read_folder(ruleset.builtin_folder())]

    assert len(names) > 100
    assert names == sorted(names)
    assert all(name.startswith("rules/") for name in names)


def test_schema_for_editors_describes_a_rule_as_people_write_it() -> None:
    schema = ruleset.json_schema()

    condition = schema["$defs"]["Condition"]
    assert set(condition["properties"]) >= {
        "all",
        "any",
        "none",
        "sequence",
        "line",
        "exception",
        "metric",
    }
    assert {"type": "string"} in condition["properties"]["line"]["anyOf"]
    assert set(schema["required"]) >= {"id", "title", "severity", "role", "match", "cause"}
    defs = {f"#/$defs/{name}" for name in schema["$defs"]}
    assert {ref for ref in _references(schema) if ref not in defs} == set()


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for value in node.values() for ref in _references(value)]
    return [ref for item in node for ref in _references(item)] if isinstance(node, list) else []


@pytest.mark.parametrize("named", [".", "", "../pack", "../pack/", "absolute"])
def test_a_folder_of_rules_is_read_from_wherever_it_is_named(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = tmp_path / "pack"
    for name in ("b/rule.yaml", "a-b.yaml", "a/z.yaml", "a/.hidden.yaml", ".git/x.yaml", "a/t.txt"):
        (pack / name).parent.mkdir(parents=True, exist_ok=True)
        (pack / name).write_text(name, encoding="utf-8")
    monkeypatch.chdir(pack)
    found = ruleset.read_folder(pack if named == "absolute" else Path(named))
    assert [content for _, content in found] == [b"a/z.yaml", b"a-b.yaml", b"b/rule.yaml"]
    assert [name.partition("/")[2] for name, _ in found] == ["a/z.yaml", "a-b.yaml", "b/rule.yaml"]
