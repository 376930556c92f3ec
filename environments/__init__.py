"""Which environments there are: their table, entries, references and Gymnasium."""
