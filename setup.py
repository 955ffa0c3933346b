"""What `pyproject.toml` has no words for: the folders `configs` and `checkpoints` lie inside `ddte` in a wheel."""

from setuptools import find_packages, setup

SHIPPED = {"ddte.configs": "configs", "ddte.checkpoints": "checkpoints"}

setup(
    packages=[*find_packages(include=["ddte*", "selector*", "data_gen*"]), *SHIPPED],
    package_dir=SHIPPED,
)
