"""A service that takes its image from another one is never passed over in silence."""

from __future__ import annotations

from forensics.launch.reading import read_all

TEXT = """services:
  base:
    image: vllm/vllm-openai:v0.20.0
    command: --model org/model
  big:
    extends: {service: base}
    environment: {A: "1"}
  other:
    image: redis
"""


def test_what_extends_brings_in_is_said_not_to_be_checked() -> None:
    forms = read_all(TEXT, "compose.yml")
    assert [form.launch.service for form in forms] == ["base"]
    assert any("not checked" in limit and "big" in limit for limit in forms[0].launch.limits)
    assert not any("other" in limit for limit in forms[0].launch.limits)
