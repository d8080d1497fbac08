"""Self-contained HTML reports."""

from modifind.report.abstract import Abstract, headline
from modifind.report.content import checks_by_kind, methods
from modifind.report.page import render_report

__all__ = ["Abstract", "checks_by_kind", "headline", "methods", "render_report"]
