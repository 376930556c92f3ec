"""Conversion of other systems' files to studies; `foreign_names/` has the name tables."""

if __name__ == "importers":
    raise ImportError("import hpo.importers instead, after `pip install -e .`")
