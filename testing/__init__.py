"""Contract tests to subclass for an environment, a network, a sampler, a rule or a training."""
