"""The available environments: their table, their reference scores, and access to Gymnasium."""

if __name__ == "environments":
    raise ImportError("import hpo.environments instead, after `pip install -e .`")
