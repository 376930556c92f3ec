"""`hpo serve`: all studies of a folder in a browser, while they run and after."""
