"""Samplers, each a pure function of (batch number, history), and the queue of proposals."""
