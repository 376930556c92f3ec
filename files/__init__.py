"""Files that are written completely or not at all, and the plain values they contain."""

if __name__ == "files":
    raise ImportError("import hpo.files instead, after `pip install -e .`")
