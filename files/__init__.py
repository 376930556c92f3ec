"""Files that are written completely or not at all, and plain values in them."""

if __name__ == "files":
    raise ImportError("import hpo.files instead, after `pip install -e .`")
