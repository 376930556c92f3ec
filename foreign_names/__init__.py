"""Names, defaults and values of other systems as plain data: one table per system.

`tables` finds them. Nothing here knows a study, a hyperparameter's range or a file: hints,
`hpo knobs` and the documents read these tables too. `importers/` reads files with them.
"""

if __name__ == "foreign_names":
    raise ImportError("import hpo.foreign_names instead, after `pip install -e .`")
