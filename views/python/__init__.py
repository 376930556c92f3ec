"""The Python interface that `import hpo` exposes."""
