"""Reading a configuration file: the steps in their order, and what they yield."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from gateway.config.checks import CHECKS, Draft, advice
from gateway.config.decode import UNSOUND, Decoder
from gateway.config.document import read_document
from gateway.config.faults import ConfigError, Fault
from gateway.config.schema import Audit, Auth, Config, FileSink, Jobs, Server, Sink
from gateway.config.secrets import Secrets, read_secrets


class Loaded(Struct, frozen=True, kw_only=True):
    """A valid configuration with its secrets."""

    config: Config
    secrets: Secrets
    missing: tuple[Fault, ...]
    """Secrets that are named but not there."""
    advice: tuple[str, ...]
    path: Path | None = None
    """Of the file; None when there is none."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should look at, one sentence each."""
        return (*self.advice, *map(str, self.missing))

    def require_secrets(self) -> None:
        """Refuse to go on without a secret that is named.

        Raises:
            ConfigError: at least one is missing; lists all.
        """
        if self.missing:
            raise ConfigError(self.missing)


def load_config(path: Path, environ: Mapping[str, str]) -> Loaded:
    """Read a configuration file. Blocks on the disk: for start-up, or a worker thread.

    Args:
        path: the file; relative paths in it count from its folder.
        environ: the environment, for `${NAME}` and `*_env`.

    Raises:
        ConfigError: the file cannot be read or holds faults; lists all.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([Fault("", f"cannot read {path}: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Fault("", f"cannot read {path}: expected UTF-8")]) from None
    path = path.absolute()
    return structs.replace(parse_config(text, path.parent, environ), path=path)


def parse_config(text: str, folder: Path, environ: Mapping[str, str]) -> Loaded:
    """Read a configuration from its text.

    Args:
        text: YAML.
        folder: where relative paths in it count from; absolute.
        environ: the environment, for `${NAME}` and `*_env`.

    Raises:
        ConfigError: it holds faults; lists all.
    """
    written, faults = read_document(text)
    decoder = Decoder(environ)
    fields = decoder.document(Config, written)
    draft = _draft(fields, written)
    faults += decoder.faults
    for check in CHECKS:
        faults += check(draft)
    if faults:
        raise ConfigError(faults)
    config = _anchored(Config(**fields), folder)
    secrets, missing = read_secrets(config, environ)
    return Loaded(config=config, secrets=secrets, missing=missing, advice=tuple(advice(config)))


def _draft(fields: Mapping[str, Any], written: Mapping[str, object]) -> Draft:
    """What of the fields is sound; a section that is not written has its defaults."""

    def section(name: str, default: Any) -> Any:
        value = fields.get(name, default)
        return None if value is UNSOUND else value

    upstreams = fields["upstreams"]
    if upstreams is UNSOUND:
        upstreams = ()
    return Draft(
        server=section("server", Server()),
        auth=section("auth", Auth()),
        jobs=section("jobs", Jobs()),
        audit=section("audit", Audit()),
        upstreams=tuple(None if upstream is UNSOUND else upstream for upstream in upstreams),
        written=written,
    )


def _anchored(config: Config, folder: Path) -> Config:
    """The same configuration with every path absolute."""

    def below(path: Path | None) -> Path | None:
        return None if path is None else folder / path

    def sink_below(sink: Sink) -> Sink:
        return structs.replace(sink, path=folder / sink.path) if isinstance(sink, FileSink) else sink

    audit = structs.replace(
        config.audit,
        sinks=tuple(map(sink_below, config.audit.sinks)),
        spool_dir=folder / config.audit.spool_dir,
    )
    return structs.replace(
        config,
        local=structs.replace(config.local, data_dir=below(config.local.data_dir)),
        payloads=structs.replace(config.payloads, dir=below(config.payloads.dir)),
        audit=audit,
    )
