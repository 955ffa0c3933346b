"""`--config FILE`: whether the file is YAML with the sections and keys that are known, before its values are read."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from reprlib import repr as short
from typing import Any

import yaml
from jsonargparse import ActionConfigFile  # type: ignore[attr-defined]

from selector.cli.errors import meant
from selector.errors import UserError

WAY_OUT = "give a pair's YAML file, as configs/smollm2-135m.yaml"


class ConfigFile(ActionConfigFile):
    """The parser's action for `--config`."""

    def __call__(self, parser: ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Read the file `values` into `namespace`, or end with a sentence."""
        keys = [action.dest for action in parser._actions]
        try:
            check_config_file(Path(values), keys)
        except UserError as error:
            parser.error(str(error))
        super().__call__(parser, namespace, values, option_string)  # type: ignore[no-untyped-call]


def check_config_file(path: Path, keys: Iterable[str]) -> None:
    """A UserError if this is no YAML file of sections, or holds another key than `keys`, `section` or `section.key`."""
    content = _load(path)
    if not isinstance(content, dict):
        raise UserError(f"config is {str(path)!r}, which holds no sections: {WAY_OUT}.")
    known = set(keys)
    sections = {key.split(".")[0] for key in known if "." in key}
    for name, section in content.items():
        if name in sections and not isinstance(section, dict):
            raise UserError(f"{name} in {str(path)!r} is {short(section)}: give its keys, or remove it.")
        given = [f"{name}.{key}" for key in section] if name in sections else [str(name)]
        unknown = next((key for key in given if key not in known), None)
        if unknown is not None:
            raise UserError(f"{unknown} in {str(path)!r} is unknown: correct or remove it.{meant(unknown, known)}")


def _load(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"config is {str(path)!r}, which is not UTF-8 text ({error}): save it as UTF-8.") from None
    except OSError as error:
        raise UserError(f"config is {str(path)!r}, which cannot be read ({error.strerror}): {WAY_OUT}.") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "no YAML"
        where = f"line {mark.line + 1}: {problem}" if mark else problem
        raise UserError(f"config is {str(path)!r}, which is not YAML ({where}): correct it there.") from None
