"""Contract tests to subclass for custom environments, networks, samplers, rules and trainings."""

if __name__ == "testing":
    raise ImportError("import hpo.testing instead, after `pip install -e .`")
