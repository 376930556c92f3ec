"""The available environments: their table, entries, references and Gymnasium."""
