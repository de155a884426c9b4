"""Included by the sample component."""
