"""The report of a run or of an order: one HTML page that needs no network."""

from veenv.measure.report.source import Subject, page_path, read_subjects
from veenv.measure.report.write import page, write_report

__all__ = ["Subject", "page", "page_path", "read_subjects", "write_report"]
