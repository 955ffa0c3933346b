"""What comes with the package, found by name: configurations, pass times, draft and selectors of the embedded pair."""

from __future__ import annotations

from pathlib import Path

SELECTOR = "checkpoints/smollm2-135m/traversal"
ROOM = Path(__file__).parents[1]
FOLDERS = ("configs", "checkpoints", "profiles")
PLACES = (ROOM / "ddte", ROOM)  # of an installed wheel; of the source tree


def find(name: Path | str) -> Path:
    """`name` as it stands where something lies there, else what is shipped under that name.

    Shipped are `configs/...`, `checkpoints/...` and `profiles/...`; any other name is given back as it is.
    """
    path = Path(name)
    if path.parts and path.parts[0] in FOLDERS and not path.exists():
        return next((place / path for place in PLACES if (place / path).exists()), path)
    return path


def lasting(name: str) -> str:
    """The absolute path of a folder, which holds in every working directory; other names are given back.

    So is the name of what is shipped.
    """
    path = Path(name)
    if not name or not path.is_dir():
        return name
    shipped = any((place / path).exists() and path.samefile(place / path) for place in PLACES)
    return name if shipped else str(path.absolute())
