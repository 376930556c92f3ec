"""Ray Tune as the scheduler of our lanes."""
