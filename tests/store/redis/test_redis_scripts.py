"""Every Lua script composes, says what it is, and is Lua that the server takes, without undefined globals."""

import hashlib
import struct
from importlib.resources import files

import pytest
import redis
from redis_server import RedisServer

from store.redis.scripts import head, names, needs, script

GIVEN = {
    "redis", "cmsgpack", "cjson", "struct", "bit", "math", "string", "table", "KEYS", "ARGV", "tonumber", "tostring",
    "pairs", "ipairs", "next", "unpack", "type", "error", "assert", "pcall", "select", "setmetatable",
}  # fmt: skip
"""What the server's Lua has."""


@pytest.mark.parametrize("name", names())
def test_the_head_states_the_contract(name: str) -> None:
    """A script's head states KEYS, ARGV, Returns and Atomicity, and the parts that it needs are put before it."""
    text = files("store.redis").joinpath("lua", f"{name}.lua").read_text()
    said = "\n".join(head(text))
    assert all(f"{word}:" in said for word in ("KEYS", "ARGV", "Returns", "Atomicity"))
    composed = script(name)
    assert composed.source.endswith(text)
    assert composed.sha == hashlib.sha1(composed.source.encode()).hexdigest()
    assert len(needs(text)) == len(set(needs(text)))


@pytest.mark.parametrize("name", names())
def test_the_server_takes_it(name: str, shared_redis: RedisServer) -> None:
    """A script compiles, under the digest that we call it by, and uses no global that the server does not have."""
    with shared_redis.client() as client:
        assert client.script_load(script(name).source) == script(name).sha
        assert globals_of(client, script(name).source) <= GIVEN


def test_parts_are_all_needed() -> None:
    """Each library part is needed by a script."""
    folder = files("store.redis").joinpath("lua")
    needed = {part for name in names() for part in needs(folder.joinpath(f"{name}.lua").read_text())}
    assert {entry.name.removesuffix(".lua") for entry in folder.joinpath("lib").iterdir()} == needed


def test_unknown_names() -> None:
    """A script or part that does not exist is an error that names it."""
    with pytest.raises(LookupError, match="no script is named 'none'"):
        script("none")


def test_undefined_globals_are_found(shared_redis: RedisServer) -> None:
    """The look at globals sees those that are read and set, also in inner functions, and no local."""
    source = "local a = 1; local function f() return a + wrong end; made = f; return f"
    with shared_redis.client() as client:
        assert globals_of(client, source) == {"wrong", "made"}


def globals_of(client: redis.Redis, source: str) -> set[str]:
    """The globals that a script reads or sets, from the byte code that the server's own Lua makes of it."""
    code = client.eval("return string.dump(assert(loadstring(ARGV[1])))", 0, source)
    return Bytecode(code).globals()


class Bytecode:
    """Lua 5.1 byte code, as far as it names globals: header, then one function that holds the others."""

    GETGLOBAL, SETGLOBAL = 5, 7

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._at = 12
        assert code[:5] == b"\x1bLuaQ"
        self._int, self._size = code[7], code[8]

    def globals(self) -> set[str]:
        self._string()
        self._number()
        self._number()
        self._at += 4
        instructions = [struct.unpack("<I", self._take(4))[0] for _ in range(self._number())]
        constants = [self._constant() for _ in range(self._number())]
        found = {
            str(constants[each >> 14])
            for each in instructions
            if each & 63 in (self.GETGLOBAL, self.SETGLOBAL)
        }
        for _ in range(self._number()):
            found |= self.globals()
        self._take(self._number() * self._int)
        for _ in range(self._number()):
            self._string()
            self._take(2 * self._int)
        for _ in range(self._number()):
            self._string()
        return found

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._code[self._at - size : self._at]

    def _number(self) -> int:
        return int.from_bytes(self._take(self._int), "little")

    def _string(self) -> str:
        size = int.from_bytes(self._take(self._size), "little")
        return self._take(size)[:-1].decode()

    def _constant(self) -> object:
        match self._take(1)[0]:
            case 0:
                return None
            case 1:
                return self._take(1)
            case 3:
                return self._take(8)
        return self._string()
