"""The command line needs rrjax[cli]."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("duckdb") and find_spec("typer") else ["test_*.py"]
