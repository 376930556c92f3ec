"""Files of other systems as study files; `foreign_names/` has the tables of their names."""
