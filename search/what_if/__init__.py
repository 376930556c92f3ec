"""A study under another stopping rule: its recorded curves, judged again.

`recorded_curves` reads them, `replay` plays them to the engine instead of training, and `what_if`
compares rules.
"""
