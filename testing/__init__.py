"""Contract tests to subclass, for an environment, network, sampler, rule or training class."""

if __name__ == "testing":
    raise ImportError("import hpo.testing instead, after `pip install -e .`")
