"""Names, defaults and values of other systems as plain data, with one table per system.

`tables` looks them up. This package contains no studies, ranges of hyperparameters or files:
hints, `hpo knobs` and the documentation read these tables too. `importers/` uses them to read
files.
"""
