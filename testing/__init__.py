"""Contract tests to subclass for an environment, a network, a sampler or a rule of your own."""
