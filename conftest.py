"""What is collected: the doctests of an integration need the library it is for."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("dask") else ["src/bures/integrations/dask.py"]
