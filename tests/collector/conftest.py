"""Fixtures that other tests need, too."""

from collections.abc import Iterator

import pytest

from tests.disks import small_disk
from tests.engines import Dockerd, engine_of

__all__ = ["small_disk"]


@pytest.fixture(scope="module")
def engine() -> Iterator[Dockerd]:
    """An engine for the tests of a module."""
    with engine_of() as found:
        yield found


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave no container behind: the next test's watcher would collect it."""
    yield
    if "engine" in request.fixturenames:
        own: Dockerd = request.getfixturevalue("engine")
        own.empty()
