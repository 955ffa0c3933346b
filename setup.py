"""What `pyproject.toml` has no words for: folders of data lie inside `ddte` in a wheel."""

from setuptools import find_packages, setup

SHIPPED = {f"ddte.{name}": name for name in ("configs", "checkpoints", "profiles")}

setup(
    packages=[*find_packages(include=["ddte*", "selector*", "data_gen*"]), *SHIPPED],
    package_dir=SHIPPED,
)
