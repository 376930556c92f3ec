"""`hpo serve`: all studies in a folder, shown in a browser during and after their runs."""
