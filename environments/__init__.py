"""The available environments: the table, its entries, reference scores, and Gymnasium."""

if __name__ == "environments":
    raise ImportError("import hpo.environments instead, after `pip install -e .`")
