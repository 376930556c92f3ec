"""Writes files completely or not at all, and reads and checks plain values."""

if __name__ == "files":
    raise ImportError("import hpo.files instead, after `pip install -e .`")
