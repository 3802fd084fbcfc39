"""What holds for every test: in CI, a skipped test is a failed one."""

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# How long an example takes says nothing of what it shows: a machine may be busy.
settings.register_profile(
    "patient", settings.get_profile("ci" if IN_CI else "default"), deadline=None
)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a person ask for what takes minutes."""
    parser.addoption("--full", action="store_true", help="also run tests at full size")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests at full size out, unless they are asked for: smaller twins stand beside them."""
    if config.getoption("--full"):
        return
    large = [item for item in items if item.get_closest_marker("full")]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn the report of a skip into one of a failure; an expected failure is no skip."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: no test may be skipped in CI ({reason})"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge one phase (set-up, call, tear-down) of one test."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the loading of one file: it, too, can skip all of its tests."""
    report = yield
    _refuse_skip(report)
    return report
