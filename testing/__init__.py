"""Contract tests to subclass for an environment, a network, a sampler, a rule or a training."""

if __name__ == "testing":
    raise ImportError("import hpo.testing instead, after `pip install -e .`")
