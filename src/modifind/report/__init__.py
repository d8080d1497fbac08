"""A report of one self-contained HTML file."""

from modifind.report.content import answer, checks_by_kind
from modifind.report.methods import methods
from modifind.report.render import render_report

__all__ = ["answer", "checks_by_kind", "methods", "render_report"]
