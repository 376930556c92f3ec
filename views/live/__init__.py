"""`hpo serve`: all studies in a folder in a browser, while they run and afterwards."""
