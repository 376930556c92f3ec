"""Screens of commands: their first line, words, and the next step that they name."""
