"""Reads and writes files: writes are complete or do not happen, and contents are plain values."""

if __name__ == "files":
    raise ImportError("import hpo.files instead, after `pip install -e .`")
