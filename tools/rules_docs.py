"""Write the reference of all rules, `docs/rules/`: one table, then a page a family.

python tools/rules_docs.py           write the pages
python tools/rules_docs.py --check   say whether they are current (exit code 1 if not)
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from forensics.analysis import load_rules
from forensics.reporters.markdown import code, escape
from forensics.reporters.rule import placeholders_as_words
from forensics.rules_schema import FixSpec, Rule
from forensics.ruleset import RuleSet, patterns_of, walk

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "rules"
NOTE = "<!-- Written by `make docs` from the rule files: change those, not this page. -->\n"
ABOUT = {
    "advice": "Runs that did not fail but are worse than they need be",
    "container": "Docker, Podman and the way a container ends",
    "cuda": "CUDA, cuBLAS, cuDNN and their libraries",
    "flashinfer": "FlashInfer kernels and their just-in-time compiler",
    "host": "The machine: memory, limits, kernel, driver, ports",
    "huggingface": "The Hugging Face hub, its cache, configurations and tokenizers",
    "llama-cpp": "llama.cpp's server",
    "nccl": "NCCL, torch.distributed and Gloo",
    "ollama": "Ollama",
    "preflight": "What can be seen in a launch command before it is started",
    "python": "Python itself, its packages and argument parsers",
    "ray": "Ray",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "tgi": "Text Generation Inference",
    "torch": "PyTorch, Dynamo and Inductor",
    "triton": "Triton and its compilers",
    "vllm": "vLLM: arguments, memory, attention, capture, serving",
    "weights": "Model weights and quantisation",
    "xid": "NVIDIA Xid messages in the kernel log",
}


def family(rule: Rule) -> str:
    """Return the family of a rule: the first part of its id."""
    return rule.id.partition(".")[0]


def pages(rules: RuleSet) -> dict[str, str]:
    """Return the pages by file name."""
    found: dict[str, str] = {}
    rows = [NOTE, "# Rules", "", f"{len(rules.rules)} signatures in families:", ""]
    rows += ["| family | rules | what it is about |", "| --- | ---: | --- |"]
    groups = [(name, list(group)) for name, group in groupby(rules.rules, key=family)]
    for name, group in groups:
        rows.append(f"| [{name}]({name}.md) | {len(group)} | {ABOUT.get(name, '')} |")
        found[f"{name}.md"] = _page(name, group)
    rows += ["", "All of them:", "", "| rule | role | what |", "| --- | --- | --- |"]
    for rule in rules.rules:
        anchor = f"{family(rule)}.md#{rule.id.replace('.', '')}"
        rows.append(
            f"| [{rule.id}]({anchor}) | {rule.role.replace('_', ' ')} | {_plain(rule.title)} |"
        )
    found["README.md"] = "\n".join(rows) + "\n"
    return found


def _page(name: str, rules: list[Rule]) -> str:
    out = [NOTE, f"# {name}", "", ABOUT.get(name, ""), ""]
    for rule in rules:
        out += _section(rule)
    return "\n".join(out).rstrip() + "\n"


def _section(rule: Rule) -> list[str]:
    out = [f"## {rule.id}", "", f"**{_plain(rule.title)}**", ""]
    facts = [rule.severity, rule.role.replace("_", " ")]
    facts += [f"phase {rule.phase}"] if rule.phase else []
    facts += [", ".join(rule.engines)] if rule.engines else []
    out += [f"{' · '.join(facts)} · confidence {rule.confidence:.0%}", ""]
    shown = [p for c in walk(rule.match) for p in patterns_of(c)]
    if shown:
        out += ["Looks for:", "", *(f"- {code(p)}" for p in dict.fromkeys(shown)), ""]
    out += [_plain(rule.cause), ""]
    if rule.fixes:
        out += ["Fixes, best first:", ""]
        out += [f"{i}. {_fix(fix)}" for i, fix in enumerate(rule.fixes, 1)] + [""]
    for step in rule.next_steps:
        out += [f"To know more: {code(step.command)}. {_plain(step.why)} {_plain(step.tells)}", ""]
    if rule.versions:
        out += [f"Versions: {_plain(rule.versions)}", ""]
    if rule.false_positives:
        out += [f"When it is wrong: {_plain(rule.false_positives)}", ""]
    if rule.references:
        out += ["References: " + ", ".join(f"<{a}>" for a in rule.references), ""]
    return out


def _fix(fix: FixSpec) -> str:
    words = " ".join(part for part in (fix.action.replace("_", " "), fix.target, fix.value) if part)
    said = f"{code(words)}: " + (f"{_plain(fix.text)} " if fix.text else "") + _plain(fix.why)
    return f"{said} ({fix.confidence:.0%}{', ' + fix.safety if fix.safety else ''})"


def _plain(text: str) -> str:
    return escape(" ".join(placeholders_as_words(text).split()))


def main() -> int:
    """Write or check the pages; return the exit code."""
    wanted = pages(load_rules())
    stale = [
        name
        for name, text in wanted.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    extra = [p.name for p in FOLDER.glob("*.md") if p.name not in wanted]
    if "--check" in sys.argv[1:]:
        sys.stdout.write("".join(f"stale: docs/rules/{name}\n" for name in (*stale, *extra)))
        return int(bool(stale or extra))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in extra:
        (FOLDER / name).unlink()
    for name in stale:
        (FOLDER / name).write_text(wanted[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
