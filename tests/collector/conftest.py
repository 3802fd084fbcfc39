"""Fixtures that other tests need, too."""

from tests.disks import small_disk

__all__ = ["small_disk"]
