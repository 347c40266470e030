"""The Lua scripts: read from the package, composed with the library parts they need, named by their digest.

A script is the file `lua/<name>.lua`. Its comment head states KEYS, ARGV, Returns and Atomicity, and may name parts:

    -- needs: base records lanes

Each part is a file `lua/lib/<part>.lua` of plain `local function`s; the parts are put in front of the script in that
order. The digest of the whole is what EVALSHA names: another release has other digests, so both run side by side.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_NEEDS = re.compile(r"--[ ]*needs:([ \w]*)")


@dataclass(frozen=True, slots=True)
class Script:
    """One script as the server runs it."""

    name: str
    source: str
    sha: str
    """SHA-1 of the source in hex, as SCRIPT LOAD answers it."""

    def __repr__(self) -> str:
        return f"<Script {self.name} {self.sha[:8]}>"


@cache
def script(name: str) -> Script:
    """The script of that name, composed.

    Raises:
        LookupError: there is no such script, or a part that it needs is missing.
    """
    folder = files("store.redis").joinpath("lua")
    body = _read(folder.joinpath(f"{name}.lua"), f"no script is named {name!r}")
    parts = [
        _read(folder.joinpath("lib", f"{part}.lua"), f"the script {name!r} needs {part!r}, which is no part")
        for part in needs(body)
    ]
    source = "\n".join([*parts, body])
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def names() -> list[str]:
    """The names of all scripts, sorted."""
    folder = files("store.redis").joinpath("lua")
    return sorted(
        entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua")
    )


def head(source: str) -> list[str]:
    """The comment lines that a file begins with."""
    lines = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return lines


def needs(source: str) -> list[str]:
    """The parts that the head of a script names, in order."""
    return [part for line in head(source) if (match := _NEEDS.match(line)) for part in match[1].split()]


def _read(entry: Traversable, missing: str) -> str:
    try:
        return entry.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LookupError(missing) from None
