"""One replica over its lives: configuration, start, and what can be done to it."""

import signal
import time
from contextlib import contextmanager
from pathlib import Path

import trio
from gateway_process import Gateway, launch

from chaos.forms import Form
from chaos.history import UPSTREAM, History, Kind, Trouble

DRAIN_S = 2
LAST_WORDS = 2000


class Replica:
    """A place for a process. One fault at a time strikes it: whoever deals it one holds `struck`.

    Args:
        number: of the replica.
        folder: its own; audit file and logs lie there and outlive its lives.
        form: of the run.
        history: where faults and unasked ends go.
    """

    def __init__(self, number: int, folder: Path, form: Form, history: History) -> None:
        self.number = number
        self.folder = folder
        self.struck = trio.Lock()
        self.url: str | None = None
        """Of the public side; None while there is nobody to ask."""
        self.admin = ""
        self.lives = 0
        self._path = folder / "gateway.yaml"
        self._form = form
        self._history = history
        self._gateway: Gateway | None = None
        folder.mkdir()

    def __repr__(self) -> str:
        return f"<Replica {self.life} at {self.url}>"

    @property
    def life(self) -> str:
        """The name of the present life, or of the last one."""
        return f"{self.number}.{self.lives}"

    @property
    def audit_files(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.folder.glob("audit.jsonl*"), key=lambda path: path.stat().st_mtime)

    def log(self, life: int) -> Path:
        """Where a life writes its log."""
        return self.folder / f"life-{life}.log"

    async def start(self, store: str, endpoints: dict[str, int]) -> None:
        """Begin the next life, and wait until it takes work.

        Args:
            store: the lines of the configuration that name the store.
            endpoints: URL -> slots.
        """
        self.lives += 1
        self._write_config(store, endpoints)
        self._gateway = await launch(self._path, self.log(self.lives))
        await self._gateway.wait_ready()
        self.url, self.admin = self._gateway.public, self._gateway.admin

    def reload(self, store: str, endpoints: dict[str, int]) -> None:
        """SIGHUP, with a configuration that may name other slots than the present one."""
        self._write_config(store, endpoints)
        self._process().signal(signal.SIGHUP)

    def _write_config(self, store: str, endpoints: dict[str, int]) -> None:
        draft = self.folder / "gateway.yaml.new"
        draft.write_text(self._config(store, endpoints))
        draft.replace(self._path)  # a reload may be reading it

    def _config(self, store: str, endpoints: dict[str, int]) -> str:
        form = self._form
        listed = ", ".join(f'{{url: "{url}", slots: {slots}}}' for url, slots in endpoints.items())
        return f"""
server: {{bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0, drain_timeout_s: {DRAIN_S}}}
{store}
jobs:
  visibility_timeout_s: {form.visibility_s}
  heartbeat_s: {form.heartbeat_s}
  processing_timeout_s: 120
  max_crashes: {form.max_crashes}
tenants: {{acme: {{weight: 3}}}}
audit: {{sinks: [{{type: file, path: audit.jsonl}}], spool_dir: spool, capture: []}}
upstreams:
  - name: {UPSTREAM}
    type: ocr-http
    adapter: sync-http
    class: on_prem
    endpoints: [{listed}]
    models: [ocr]
    submit_path: /ocr/{self.life}
    reserved_interactive: 1
"""

    def last_words(self) -> str:
        """The end of the present life's log."""
        return self.log(self.lives).read_text()[-LAST_WORDS:]

    def running(self) -> bool:
        """Whether a process is there, frozen or not."""
        return self._gateway is not None and self._gateway.process.returncode is None

    async def kill(self) -> None:
        """kill -9."""
        self.url = None
        await self._process().kill()

    async def drain(self) -> None:
        """SIGTERM; the history has the exit code, and the last words of a process that did not end as it was told."""
        process = self._process()
        process.signal(signal.SIGTERM)
        # It is asked on while it drains: it must refuse in words, and answer reads.
        code = await process.ended()
        self.url = None
        closing = self._history.closing
        closing.exits[self.life] = code
        if code:
            closing.last_words[self.life] = self.last_words()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._process().signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process().signal(signal.SIGCONT)

    async def gone(self) -> None:
        """Make sure that nothing runs; in cleanup."""
        self.url = None
        if self._gateway is not None:
            await self._gateway.gone()

    @contextmanager
    def trouble(self, kind: Kind):
        """Note a fault for the time of a block."""
        note = Trouble(kind, self.life, time.time())
        self._history.troubles.append(note)
        try:
            yield note
        finally:
            note.ended = time.time()

    def _process(self) -> Gateway:
        if self._gateway is None:
            raise RuntimeError(f"replica {self.number} was never started")
        return self._gateway
