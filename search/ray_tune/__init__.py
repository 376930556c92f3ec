"""Ray Tune as the scheduler for our lanes."""
