"""Log and crash forensics for containers that serve large language models.

The public surface is small: `diagnose` turns a source into a `Diagnosis`. Imports are lazy, so
that `import forensics` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forensics.analysis import diagnose
    from forensics.model import Diagnosis

__version__ = "0.1.0"
__all__ = ["Diagnosis", "__version__", "diagnose"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - module attribute hook, the type is the name's
    """Import the public names on first use."""
    if name == "diagnose":
        from forensics.analysis import diagnose

        return diagnose
    if name == "Diagnosis":
        from forensics.model import Diagnosis

        return Diagnosis
    raise AttributeError(name)
