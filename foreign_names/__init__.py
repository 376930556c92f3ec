"""Names, defaults and values of other systems as plain data, with one table per system.

`tables` looks names up. This package contains no studies, ranges of hyperparameters or files,
because hints, `hpo knobs` and the documentation also use it. `importers/` reads files with these
tables.
"""

if __name__ == "foreign_names":
    raise ImportError("import hpo.foreign_names instead, after `pip install -e .`")
