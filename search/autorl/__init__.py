"""`AutoRLEnv`: an environment whose lanes are PPO runs and whose actions are their knobs."""
