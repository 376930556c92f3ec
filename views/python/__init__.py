"""The Python interface exposed by `import hpo`."""
