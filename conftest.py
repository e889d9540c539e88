"""Which modules are searched for examples: those with Triton kernels only where there is Triton."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/doap/**/triton_*.py"]
