"""Contract tests to subclass, for environments, networks, samplers, rules and training classes."""

if __name__ == "testing":
    raise ImportError("import hpo.testing instead, after `pip install -e .`")
