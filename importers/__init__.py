"""Converts other systems' files to studies; the name tables are in `foreign_names/`."""

if __name__ == "importers":
    raise ImportError("import hpo.importers instead, after `pip install -e .`")
