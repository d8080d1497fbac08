"""Tables as they are read, for tests that need no fit."""

import numpy as np

from modifind.engine.reading import Given, Reading


def looked_at(given, **settings):
    """How a table in memory is read, and a look at it."""
    reading = Reading(**settings, treated=given.treated, adjust_for=given.adjust_for)
    return reading, reading.at_once(given.source().whole)


def read(given, **settings):
    """A table in memory as a fit reads it."""
    reading, looked = looked_at(given, **settings)
    return reading.read(looked)


def read_rows(given, transform=None, **settings):
    """How rows are read and the rows themselves; nothing is pooled, and no suspicion is told."""
    reading, looked = looked_at(given, **settings)
    schema = reading.schema(looked, range(len(looked.summary.names)), transform)
    return schema, schema.read(looked.sample)


def read_columns(y, treatment, n_rows=60, treated=None):
    """The same of a table whose one feature is of no interest."""
    return read_rows(Given({"x": np.arange(float(n_rows))}, y, treatment, treated))


def read_treatment(treatment, n_rows=60, treated=None):
    """Labels of the control and of the treated, and 0 or 1 for every row."""
    schema, block = read_columns(np.arange(float(n_rows)), treatment, n_rows, treated)
    return schema.arm_labels, block.treatment


def read_outcome(y, n_rows=60):
    """The outcome as numbers."""
    return read_columns(y, np.arange(n_rows) % 2, n_rows)[1].y
