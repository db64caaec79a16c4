"""Finds programs: what `shutil.which` does, without its module, which loads the readers of all kinds of archives."""

import os


def find(name: str, path: str | None = None) -> str | None:
    """The path of a program, from the folders in `path`, else in the PATH of this process; None if there is none."""
    if os.path.dirname(name):
        return name if _can_start(name) else None
    folders = path if path is not None else os.environ.get("PATH", os.defpath)
    places = (os.path.join(folder, name) for folder in folders.split(os.pathsep) if folders)
    return next(filter(_can_start, places), None)


def _can_start(path: str) -> bool:
    return os.path.exists(path) and os.access(path, os.X_OK) and not os.path.isdir(path)
