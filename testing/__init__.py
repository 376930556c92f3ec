"""Contract tests to subclass, for an environment, network, sampler, rule or training."""
