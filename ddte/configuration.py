"""A pair's YAML file, read from Python as the command line reads it."""

from __future__ import annotations

from pathlib import Path

import yaml
from jsonargparse import ArgumentParser

from selector.cli.parse_errors import of_value
from selector.cli.parser import SECTIONS, UniqueKeys
from selector.config import Config
from selector.errors import UserError
from selector.shipped import find


def load_config(path: Path | str) -> Config:
    """The configuration of a pair; what the file leaves out has its default.

    Args:
        path: a YAML file, or a shipped one by name; its sections are `pair`, `action_space`, `generate`, `train`,
            `evaluate`, `distill` and `decode`.

    Returns:
        The frozen dataclass `Config`; `dataclasses.replace` makes another one of it or of a section.

    Raises:
        UserError: a file that cannot be read, an unknown key, a value of the wrong type or out of range.

    Example:
        >>> config = ddte.load_config("configs/smollm2-135m.yaml")
        >>> config.train.hidden_sizes
        (512, 32)
    """
    parser = ArgumentParser(exit_on_error=False)
    for section, kind in SECTIONS.items():
        parser.add_class_arguments(kind, section)
    try:
        content = yaml.load(find(path).read_text("utf-8"), UniqueKeys)
        if not isinstance(content, dict):
            raise UserError(f"config file '{path}' holds no sections: write 'SECTION:' and settings below it.")
        sections = parser.instantiate(parser.parse_object(content))
    except UserError:
        raise
    except Exception as error:  # jsonargparse's, yaml's and the system's errors have no common parent
        reason = of_value(str(error)).rstrip(".")
        raise UserError(f"config file '{path}' cannot be used ({reason}).") from None
    return Config(**{name: sections[name] for name in SECTIONS})
