"""The report of an evaluation: numbers, tables, pictures, and one page that holds them all."""

from shared.report.classification import write_classification
from shared.report.files import Subject
from shared.report.language import write_language
from shared.report.regression import write_regression
from shared.report.samples import Sample, draw_sample, sample_rows
from shared.report.shown_rows import RowReader, TokenText

__all__ = [
    "RowReader",
    "Sample",
    "Subject",
    "TokenText",
    "draw_sample",
    "sample_rows",
    "write_classification",
    "write_language",
    "write_regression",
]
