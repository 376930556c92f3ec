"""The available environments: their table, entries, references and Gymnasium."""

if __name__ == "environments":
    raise ImportError("import hpo.environments instead, after `pip install -e .`")
