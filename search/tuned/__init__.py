"""Tuned configurations: runs on fresh seeds that prove one, what is made of them, and replays."""
