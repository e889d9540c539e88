"""What the parts of a campaign report."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

Say = Callable[[str], None]
"""Shows a line of progress."""


@dataclass(frozen=True)
class Finding:
    """Something that must not happen.

    Attributes:
        where: Format, command or place.
        what: One line.
        replay: Command that shows it again.
        count: How often it was seen.
    """

    where: str
    what: str
    replay: str
    count: int = 1


@dataclass
class PartResult:
    """Result of a part of a campaign.

    Attributes:
        name: Name of the part.
        title: What it does, in one line.
        settings: Options that it ran with.
        counts: Rows of a table: where, and numbers by name.
        findings: What must not happen.
        skipped: What could not be tried here, and why.
        seconds: Duration.
    """

    name: str
    title: str
    settings: dict[str, Any] = field(default_factory=dict)
    counts: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)
