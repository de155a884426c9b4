"""The report of an evaluation: numbers, tables, pictures, and one page that holds them all."""

from shared.report.page import Subject, write_report

__all__ = ["Subject", "write_report"]
