"""Names, defaults and values of other systems as plain data, with one table per system.

`tables` looks them up. This package contains no studies, ranges of hyperparameters or files:
hints, `hpo knobs` and the documentation read these tables too. `importers/` uses them to read
files.
"""

if __name__ == "foreign_names":
    raise ImportError("import hpo.foreign_names instead, after `pip install -e .`")
