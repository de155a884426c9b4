"""The report of an evaluation: numbers, tables, pictures, and one page that holds them all."""

from shared.report.classification import write_classification
from shared.report.files import Subject
from shared.report.language import write_language
from shared.report.regression import write_regression

__all__ = ["Subject", "write_classification", "write_language", "write_regression"]
