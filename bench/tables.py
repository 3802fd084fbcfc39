"""Turns a report into text for a terminal of 80 columns."""

from typing import Any, Final

WIDTH: Final = 80
_COLUMNS: Final = f"{'best s':>8} {'median s':>8} {'cpu s':>7} {'peak':>5} {'MB/s':>6} {'ratio':>7}"


def text(report: dict[str, Any]) -> str:
    """Write the report as text of at most 80 columns."""
    facts, rules = report["machine"], report["inputs"]["rules"]
    lines = [
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_bytes'] / 1e9:.0f} GB; "
        f"{facts['kernel']}"[:WIDTH],
        f"Python {facts['python']}; {facts['ripgrep']}; {facts['grep']}"[:WIDTH],
        f"{facts['forensics']}: {rules['rules']} rules, {rules['patterns']} patterns; "
        f"{rules['literals']} literals"[:WIDTH],
    ]
    if report["quick"]:
        lines.append("quick: the inputs are tiny, so the figures mean nothing")
    for group in report["groups"]:
        lines += ["", *_table(group, report["inputs"])]
    lines += ["", "targets (by the median)"]
    for target in report["targets"]:
        said = {None: "not run", True: "met", False: "not met"}[target["met"]]
        value = "" if target["value"] is None else f"{target['value']:.3g}"
        lines.append(f"  {said:<8} {target['text']:<52} {value:>8}")
    lines += [
        "",
        "s: seconds; cpu: user and system time; peak: resident memory, 10^6 bytes, never",
        f"shown below {report['floor_bytes'] / 1e6:.0f} MB (what the measuring process holds).",
    ]
    return "\n".join(lines)


def _table(group: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """Write one group: a heading, a line for each command, and whether the answer was right."""
    heading = group["title"]
    if group["input"]:
        log = made[group["input"]]
        heading += f", {log['bytes'] / 1e6:,.0f} MB, {log['lines']:,} lines"
    rounds = f"{group['rounds']} round{'s' if group['rounds'] > 1 else ''}"
    lines = [
        f"{heading} ({rounds}; 1.00 = {group['base']})",
        f"  {'':<28} {_COLUMNS}",
    ]
    for entry in group["entries"]:
        name = entry["command"] + (" *" if entry.get("scaled_by") else "")
        if "median_s" not in entry:
            lines.append(f"  {name:<28} did not run: {entry['problem']}"[:WIDTH])
            continue
        speed = f"{entry['bytes_per_s'] / 1e6:,.0f}" if entry["bytes_per_s"] else ""
        ratio = "" if entry["ratio"] is None else f"{entry['ratio']:.2f}"
        lines.append(
            f"  {name:<28} {entry['best_s']:>8.3f} {entry['median_s']:>8.3f} "
            f"{entry['cpu_s']:>7.2f} {entry['peak_bytes'] / 1e6:>5.0f} {speed:>6} {ratio:>7}"
        )
        if "answer" in entry:
            lines.append(f"    answer {entry['answer']}")
        if entry.get("scaled_by"):
            lines.append(f"    * measured on a part, times {entry['scaled_by']:.1f}")
    return lines
